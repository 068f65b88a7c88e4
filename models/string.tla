------------------------------- MODULE string -------------------------------
(* The string lock: no not-after at acquire and release, whose late copies run whenever they arrive. An action is
   called like the command or the script that it stands for:

     acquire   SET name token NX GET PXAT t, and string_acquire
     release   DELIFEQ, and string_release
     renew, extend   string_renew, by the keeper and by a caller: both can be under way at once

   On a server without scripts (native) a renewal is SET IFEQ PX instead: no not-after, and it sets a lease, but one that
   is at least what is left of the longest that its sender has been granted. Of an extension only a lease is counted on.

   A client that got no answer sends the same acquire again at once. When a lost copy cannot act any more, its token
   is released once more (settle).

   small: Clients={"a","b"} MaxTime=4 Lease=2 Long=4 Patience=1 MaxSent=3
   large: Clients={"a","b"} MaxTime=5 Lease=2 Long=4 Patience=1 MaxSent=4
   rules: FreshTokens FixedEnd Raises Parts
   invariants: Exclusive Believed *)
EXTENDS Naturals
CONSTANTS Clients, MaxTime, Lease, Long, Patience, MaxSent,
          FreshTokens, \* a token is never used again
          FixedEnd,    \* all copies of an acquire carry one end of the lease
          Raises,      \* string_renew raises a lease and never shortens it
          Parts        \* without scripts an extension is counted on in parts
VARIABLES now, token, until, \* of the server; the string and its expiry
          net, sent,
          mine,      \* of a client: its token now; <<>> none
          first,     \* and the end that its first copy named
          belief,    \* until when it counts on the lock
          leased,    \* when the longest lease ends that it was granted
          holds,     \* how many tokens it has had
          native     \* of the server, for good
vars == <<now, token, until, net, sent, mine, first, belief, leased, holds, native>>

None == <<"", 0>>
Live == IF now < until THEN token ELSE None
Token(c) == <<c, IF FreshTokens THEN holds[c] + 1 ELSE 1>>

Init == /\ now = 0 /\ token = None /\ until = 0 /\ net = {} /\ sent = 0
        /\ mine = [c \in Clients |-> None] /\ first = [c \in Clients |-> 0] /\ belief = [c \in Clients |-> 0]
        /\ holds = [c \in Clients |-> 0] /\ leased = [c \in Clients |-> 0] /\ native \in BOOLEAN

Put(c, verb, tok, end, lease) ==
    /\ sent < MaxSent
    /\ sent' = sent + 1
    /\ net' = net \cup {[n |-> sent + 1, client |-> c, verb |-> verb, token |-> tok, end |-> end, lease |-> lease,
                         at |-> now, notAfter |-> now + Patience]}

SendAcquire(c) ==
    /\ mine[c] = None
    /\ mine' = [mine EXCEPT ![c] = Token(c)]
    /\ first' = [first EXCEPT ![c] = now + Lease]
    /\ holds' = [holds EXCEPT ![c] = @ + 1]
    /\ Put(c, "acquire", Token(c), now + Lease, Lease)
    /\ UNCHANGED <<now, token, until, belief, leased>>
(* No answer came: the same again. *)
Resend(c) ==
    /\ mine[c] # None /\ belief[c] = 0 /\ first[c] > now
    /\ Put(c, "acquire", mine[c], IF FixedEnd THEN first[c] ELSE now + Lease, Lease)
    /\ UNCHANGED <<now, token, until, mine, first, belief, leased, holds>>
SendRenew(c, verb, lease) ==
    /\ belief[c] > now
    /\ Put(c, verb, mine[c], 0, IF native /\ leased[c] > now + lease THEN leased[c] - now ELSE lease)
    /\ UNCHANGED <<now, token, until, mine, first, belief, leased, holds>>
(* Of a hold that is over, given up, or lost. *)
SendRelease(c) ==
    /\ mine[c] # None
    /\ Put(c, "release", mine[c], 0, 0)
    /\ mine' = [mine EXCEPT ![c] = None]
    /\ belief' = [belief EXCEPT ![c] = 0]
    /\ leased' = [leased EXCEPT ![c] = 0]
    /\ UNCHANGED <<now, token, until, first, holds>>

(* The server runs one, and its sender hears the answer at once, or never. What it hears is counted on if it is about
   the token of now. *)
Later(x, y) == IF x > y THEN x ELSE y
Ran(m, held, heard) ==
    LET c == m.client
        good == heard /\ held /\ mine[c] = m.token
        end == IF m.verb = "acquire" THEN m.end ELSE m.at + m.lease
        counted == IF m.verb # "acquire" /\ native /\ Parts THEN m.at + Lease ELSE end
        grants == good /\ (m.verb = "acquire" \/ belief[c] > now)
    IN /\ net' = net \ {m}
       /\ belief' = IF grants THEN [belief EXCEPT ![c] = Later(@, counted)] ELSE belief
       /\ leased' = IF grants THEN [leased EXCEPT ![c] = Later(@, end)] ELSE leased

acquire(m, heard) ==
    LET sets == Live = None /\ m.end > now
    IN /\ m.verb = "acquire"
       /\ Ran(m, sets \/ Live = m.token, heard)
       /\ token' = IF sets THEN m.token ELSE token
       /\ until' = IF sets THEN m.end ELSE until
renew(m, heard) ==
    LET held == (native \/ now <= m.notAfter) /\ Live = m.token
    IN /\ m.verb \in {"renew", "extend"}
       /\ Ran(m, held, heard)
       /\ until' = IF ~held \/ (~native /\ Raises /\ until > now + m.lease) THEN until ELSE now + m.lease
       /\ UNCHANGED token
release(m, heard) ==
    /\ m.verb = "release"
    /\ Ran(m, FALSE, heard)
    /\ token' = IF Live = m.token THEN None ELSE token
    /\ UNCHANGED until

Lose(m) == net' = net \ {m} /\ UNCHANGED <<now, token, until, sent, mine, first, belief, leased, holds>>
Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<token, until, net, sent, mine, first, belief, leased, holds>>

Step == \/ Tick
        \/ \E c \in Clients : \/ SendAcquire(c) \/ Resend(c) \/ SendRelease(c)
                              \/ SendRenew(c, "renew", Lease) \/ SendRenew(c, "extend", Long)
        \/ \E m \in net : \/ Lose(m)
                          \/ \E heard \in BOOLEAN :
                                /\ acquire(m, heard) \/ renew(m, heard) \/ release(m, heard)
                                /\ UNCHANGED <<now, sent, mine, first, holds>>
Next == Step /\ UNCHANGED native
Spec == Init /\ [][Next]_vars

Exclusive == \A c, d \in Clients : (c # d /\ belief[c] > now) => belief[d] <= now
Believed == \A c \in Clients : belief[c] > now => Live = mine[c]
=============================================================================
