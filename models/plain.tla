------------------------------- MODULE plain -------------------------------
(* The plain lock on one server: leases, lost replies, and commands that a connection which was given up delivers
   late. An action is called like the script or the part of the client that it stands for:

     plain_acquire, renew, plain_release   src/redis/scripts, all behind guard.lua
     Send, Answer                          src/redis/exchange/exchange.c
     belief                                the deadline of src/core/hold/hold.c

   One clock: the client's estimate of the server's clock is taken for right. Time is discrete. A command that is
   under way stays so for as long as the network likes, or for ever.

   small: Clients={"a","b"} MaxTime=4 Lease=2 Patience=1 MaxSent=3
   large: Clients={"a","b"} MaxTime=5 Lease=3 Patience=1 MaxSent=3
   rules: Refuse Quiet FromSent
   invariants: Exclusive Believed *)
EXTENDS Naturals
CONSTANTS Clients, MaxTime, Lease, Patience, MaxSent,
          Refuse,   \* guard.lua: a copy that arrives past its not-after does nothing
          Quiet,    \* exchange.c: with a command unanswered, nothing is sent before its not-after has passed
          FromSent  \* hold.c: a lease is counted from when its command was sent, not from its answer
VARIABLES now,      \* of the server
          holder,   \* in the hash
          until,    \* when that expires
          net,      \* commands under way, and answers
          sent,     \* how many commands there were
          pending,  \* of a client: the number of its unanswered command; 0: none
          expect,   \* its not-after
          belief    \* until when a client counts on the lock; 0: it does not
vars == <<now, holder, until, net, sent, pending, expect, belief>>

Nobody == "nobody"
Live == IF now < until THEN holder ELSE Nobody

Init == /\ now = 0 /\ holder = Nobody /\ until = 0 /\ net = {} /\ sent = 0
        /\ pending = [c \in Clients |-> 0] /\ expect = [c \in Clients |-> 0] /\ belief = [c \in Clients |-> 0]

Send(c, script) ==
    /\ sent < MaxSent
    /\ pending[c] = 0 \/ now > expect[c] \/ ~Quiet
    /\ net' = net \cup {[n |-> sent + 1, client |-> c, script |-> script, at |-> now,
                         notAfter |-> now + Patience, answer |-> "none"]}
    /\ sent' = sent + 1
    /\ pending' = [pending EXCEPT ![c] = sent + 1]
    /\ expect' = [expect EXCEPT ![c] = now + Patience]
    /\ belief' = IF script = "plain_release" THEN [belief EXCEPT ![c] = 0] ELSE belief
    /\ UNCHANGED <<now, holder, until>>

(* The server runs one. Its answer is another message, which may be lost, too. *)
Ran(m, answer) == net' = (net \ {m}) \cup {[m EXCEPT !.answer = answer]}
TooLate(m) == Refuse /\ now > m.notAfter
plain_acquire(m) ==
    LET grant == ~TooLate(m) /\ Live \in {Nobody, m.client}
    IN /\ m.script = "plain_acquire"
       /\ Ran(m, IF grant THEN "held" ELSE "not")
       /\ holder' = IF grant THEN m.client ELSE holder
       /\ until' = IF ~grant THEN until ELSE now + Lease
renew(m) ==
    LET held == ~TooLate(m) /\ Live = m.client
    IN /\ m.script = "renew"
       /\ Ran(m, IF held THEN "held" ELSE "not")
       /\ until' = IF held THEN now + Lease ELSE until
       /\ UNCHANGED holder
plain_release(m) ==
    LET free == ~TooLate(m) /\ Live = m.client
    IN /\ m.script = "plain_release"
       /\ Ran(m, "not")
       /\ holder' = IF free THEN Nobody ELSE holder
       /\ UNCHANGED until

(* An answer to a command that the client no longer waits for is not read: its connection is gone. *)
Answer(m) ==
    /\ net' = net \ {m}
    /\ IF pending[m.client] # m.n THEN UNCHANGED <<pending, belief>>
       ELSE /\ pending' = [pending EXCEPT ![m.client] = 0]
            /\ belief' = [belief EXCEPT ![m.client] =
                            IF m.answer = "held" THEN (IF FromSent THEN m.at ELSE now) + Lease ELSE 0]
    /\ UNCHANGED <<now, holder, until, sent, expect>>
Lose(m) == net' = net \ {m} /\ UNCHANGED <<now, holder, until, sent, pending, expect, belief>>
Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<holder, until, net, sent, pending, expect, belief>>

Next == \/ Tick
        \/ \E c \in Clients : \/ belief[c] <= now /\ Send(c, "plain_acquire")
                              \/ belief[c] > now /\ Send(c, "renew")
                              \/ Send(c, "plain_release")
        \/ \E m \in net : \/ Lose(m)
                          \/ m.answer # "none" /\ Answer(m)
                          \/ /\ m.answer = "none"
                             /\ plain_acquire(m) \/ renew(m) \/ plain_release(m)
                             /\ UNCHANGED <<now, sent, pending, expect, belief>>
Spec == Init /\ [][Next]_vars

Exclusive == \A c, d \in Clients : (c # d /\ belief[c] > now) => belief[d] <= now
Believed == \A c \in Clients : belief[c] > now => Live = c
=============================================================================
