-------------------------------- MODULE fair --------------------------------
(* The fair lock on one server: a queue, a hand-over by message to the first waiter that lives, and waiters that give
   up while the lock is on its way to them. An action is called like the script that it stands for:

     fair_acquire, fair_release, fair_give_up   src/redis/scripts
     HandOver                                   hand_over() of fair_queue.lua, in release and give-up
     Message                                    a grant on its way by pub/sub; it can be lost
     Send, Answer                               src/redis/exchange/exchange.c
     belief                                     the deadline of src/core/hold/hold.c

   A waiter asks again (which renews its record) and gives up at any time. One clock, as in plain.tla.

   small: Clients={"a","b"} MaxTime=3 Lease=2 Confirm=1 Horizon=2 Patience=1 MaxSent=3
   large: Clients={"a","b"} MaxTime=4 Lease=2 Confirm=1 Horizon=2 Patience=1 MaxSent=4
   rules: Refuse Undo ServerTime InTurn
   invariants: Exclusive Believed Settled Ordered *)
EXTENDS Naturals, Sequences, FiniteSets
CONSTANTS Clients, MaxTime, Lease, Confirm, Horizon, Patience, MaxSent,
          Refuse,     \* guard.lua: a copy that arrives past its not-after does nothing
          Undo,       \* fair_give_up: frees a lock that was granted meanwhile
          ServerTime, \* a grant is counted from the time that it names, not from its arrival
          InTurn      \* fair_acquire: a free lock is the caller's only if nobody who lives is before it
VARIABLES now, holder, until, queue, alive, \* of the server
          net, sent, pending, expect,
          wants,  \* what a client is about: "nothing", "lock" or "out" (it gives up)
          belief,
          jumped  \* somebody got the lock before another that was first and alive
vars == <<now, holder, until, queue, alive, net, sent, pending, expect, wants, belief, jumped>>

Nobody == "nobody"
Live == IF now < until THEN holder ELSE Nobody
Living(q) == SelectSeq(q, LAMBDA c : alive[c] > now)
Without(q, c) == SelectSeq(q, LAMBDA d : d # c)
Has(q, c) == \E i \in 1..Len(q) : q[i] = c

Init == /\ now = 0 /\ holder = Nobody /\ until = 0 /\ queue = <<>> /\ alive = [c \in Clients |-> 0]
        /\ net = {} /\ sent = 0 /\ pending = [c \in Clients |-> 0] /\ expect = [c \in Clients |-> 0]
        /\ wants = [c \in Clients |-> "nothing"] /\ belief = [c \in Clients |-> 0] /\ jumped = FALSE

Send(c, script) ==
    /\ sent < MaxSent
    /\ pending[c] = 0 \/ now > expect[c]
    /\ sent' = sent + 1
    /\ net' = net \cup {[n |-> sent + 1, client |-> c, script |-> script, at |-> now,
                         notAfter |-> now + Patience, answer |-> "none"]}
    /\ pending' = [pending EXCEPT ![c] = sent + 1]
    /\ expect' = [expect EXCEPT ![c] = now + Patience]
    /\ UNCHANGED <<now, holder, until, queue, alive, jumped>>
Acquire(c) == /\ belief[c] <= now /\ wants[c] # "out"
              /\ Send(c, "fair_acquire")
              /\ wants' = [wants EXCEPT ![c] = "lock"] /\ UNCHANGED belief
GiveUp(c) == /\ wants[c] \in {"lock", "out"} /\ belief[c] <= now
             /\ Send(c, "fair_give_up")
             /\ wants' = [wants EXCEPT ![c] = "out"] /\ UNCHANGED belief
Release(c) == /\ belief[c] > now
              /\ Send(c, "fair_release")
              /\ wants' = [wants EXCEPT ![c] = "out"] /\ belief' = [belief EXCEPT ![c] = 0]

(* The lock is free: the first that lives gets it, for as long as it may take to confirm; the dead are swept. *)
HandOver(q, m, answer) ==
    LET line == Living(q) IN
    IF line = <<>>
    THEN /\ holder' = Nobody /\ until' = 0 /\ queue' = <<>>
         /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = answer]}
    ELSE /\ holder' = Head(line) /\ until' = now + Confirm /\ queue' = Tail(line)
         /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = answer],
                                      [n |-> m.n, client |-> Head(line), script |-> "grant", at |-> now,
                                       notAfter |-> 0, answer |-> "granted"]}
Nothing(m, answer) == /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = answer]}
                      /\ UNCHANGED <<holder, until, queue>>
TooLate(m) == Refuse /\ now > m.notAfter

fair_acquire(m) ==
    LET c == m.client
        others == Living(Without(queue, c))
        before == IF Has(queue, c) /\ Living(queue) # <<>> THEN Head(Living(queue)) \notin {c} ELSE others # <<>>
        free == Live = Nobody
    IN /\ m.script = "fair_acquire"
       /\ IF TooLate(m) THEN Nothing(m, "late") /\ UNCHANGED <<alive, jumped>>
          ELSE IF Live = c \/ (free /\ (~InTurn \/ ~before))
          THEN /\ holder' = c /\ until' = now + Lease /\ queue' = Without(queue, c)
               /\ jumped' = (jumped \/ (free /\ before))
               /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = "held"]} /\ UNCHANGED alive
          ELSE /\ alive' = [alive EXCEPT ![c] = now + Horizon]
               /\ UNCHANGED jumped
               /\ LET q == IF Has(queue, c) THEN queue ELSE Append(queue, c)
                  IN IF free THEN HandOver(q, m, "queued")
                     ELSE /\ queue' = q /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = "queued"]}
                          /\ UNCHANGED <<holder, until>>
fair_release(m) ==
    /\ m.script = "fair_release" /\ UNCHANGED <<alive, jumped>>
    /\ IF TooLate(m) THEN Nothing(m, "late")
       ELSE IF Live = m.client THEN HandOver(queue, m, "out") ELSE Nothing(m, "out")
fair_give_up(m) ==
    LET q == Without(queue, m.client) IN
    /\ m.script = "fair_give_up" /\ UNCHANGED <<alive, jumped>>
    /\ IF TooLate(m) THEN Nothing(m, "late")
       ELSE IF (Live = m.client /\ Undo) \/ Live = Nobody THEN HandOver(q, m, "out")
       ELSE /\ queue' = q /\ net' = (net \ {m}) \cup {[m EXCEPT !.answer = "out"]} /\ UNCHANGED <<holder, until>>

(* A client whose release or give-up was not answered well sends it again: it is out when it has been told so. *)
Answer(m) ==
    LET c == m.client IN
    /\ m.script # "grant"
    /\ net' = net \ {m}
    /\ IF pending[c] # m.n THEN UNCHANGED <<pending, belief, wants>>
       ELSE /\ pending' = [pending EXCEPT ![c] = 0]
            /\ belief' = IF m.answer = "held" THEN [belief EXCEPT ![c] = m.at + Lease] ELSE belief
            /\ wants' = IF m.answer = "out" THEN [wants EXCEPT ![c] = "nothing"] ELSE wants
    /\ UNCHANGED <<now, holder, until, queue, alive, sent, expect, jumped>>
Settle(c) == /\ wants[c] = "out" /\ Send(c, "fair_give_up") /\ UNCHANGED <<wants, belief>>
Message(m) ==
    LET c == m.client IN
    /\ m.script = "grant"
    /\ net' = net \ {m}
    /\ belief' = IF wants[c] = "lock" /\ belief[c] <= now
                 THEN [belief EXCEPT ![c] = (IF ServerTime THEN m.at ELSE now) + Confirm] ELSE belief
    /\ UNCHANGED <<now, holder, until, queue, alive, sent, pending, expect, wants, jumped>>
Lose(m) == net' = net \ {m} /\ UNCHANGED <<now, holder, until, queue, alive, sent, pending, expect, wants, belief, jumped>>
Tick == now < MaxTime /\ now' = now + 1
        /\ UNCHANGED <<holder, until, queue, alive, net, sent, pending, expect, wants, belief, jumped>>

Next == \/ Tick
        \/ \E c \in Clients : Acquire(c) \/ GiveUp(c) \/ Release(c) \/ Settle(c)
        \/ \E m \in net : \/ Lose(m)
                          \/ m.answer # "none" /\ (Answer(m) \/ Message(m))
                          \/ /\ m.answer = "none"
                             /\ fair_acquire(m) \/ fair_release(m) \/ fair_give_up(m)
                             /\ UNCHANGED <<now, sent, pending, expect, wants, belief>>
Spec == Init /\ [][Next]_vars

Exclusive == \A c, d \in Clients : (c # d /\ belief[c] > now) => belief[d] <= now
Believed == \A c \in Clients : belief[c] > now => Live = c
(* What a client is done with is over at the server: no residue, neither in the lock nor in the queue. *)
Settled == \A c \in Clients : (wants[c] = "nothing" /\ pending[c] = 0) => (Live # c /\ ~Has(queue, c))
Ordered == ~jumped
=============================================================================
