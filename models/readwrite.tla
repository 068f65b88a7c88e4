----------------------------- MODULE readwrite -----------------------------
(* The read/write lock on one server: a hash with its mode, and a key with a lease of its own for each reader. An
   action is called like the script that it stands for:

     read_acquire, read_release, write_acquire, write_release   src/redis/scripts
     LeaveToReaders                                             leave_to_readers() of readwrite_common.lua
     Send                                                       src/redis/exchange/exchange.c
     reads, writes                                              the deadlines of src/core/hold/hold.c

   A client that writes may also read, and stop writing first. Leases are chosen from Leases. One clock, as in
   plain.tla.

   small: Clients={"a","b"} MaxTime=3 Leases={1,2} Patience=1 MaxSent=3
   large: Clients={"a","b"} MaxTime=4 Leases={1,3} Patience=1 MaxSent=3
   rules: Refuse Longest Downgrade Raises
   invariants: Alone There *)
EXTENDS Naturals
CONSTANTS Clients, MaxTime, Leases, Patience, MaxSent,
          Refuse,    \* guard.lua: a copy that arrives past its not-after does nothing
          Longest,   \* the lock lasts as long as its longest reader, whoever comes or goes
          Downgrade, \* write_release leaves the lock to its owner if that also reads
          Raises     \* a nested acquire raises the lease of a reader, and never shortens it
VARIABLES now, until, writer, hold, \* of the server: the hash's expiry; the writer's field; until when each reads
          net, sent, pending, expect, reads, writes
vars == <<now, until, writer, hold, net, sent, pending, expect, reads, writes>>

Nobody == "nobody"
Exists == now < until
Writer == IF Exists THEN writer ELSE Nobody
Readers == {c \in Clients : Exists /\ hold[c] > now}
Max(set) == CHOOSE x \in set : \A y \in set : y <= x
Later(x, y) == IF x > y THEN x ELSE y

Init == /\ now = 0 /\ until = 0 /\ writer = Nobody /\ hold = [c \in Clients |-> 0] /\ net = {} /\ sent = 0
        /\ pending = [c \in Clients |-> 0] /\ expect = [c \in Clients |-> 0]
        /\ reads = [c \in Clients |-> 0] /\ writes = [c \in Clients |-> 0]

Send(c, script, lease) ==
    /\ sent < MaxSent
    /\ pending[c] = 0 \/ now > expect[c]
    /\ sent' = sent + 1
    /\ net' = net \cup {[n |-> sent + 1, client |-> c, script |-> script, lease |-> lease, at |-> now,
                         notAfter |-> now + Patience]}
    /\ pending' = [pending EXCEPT ![c] = sent + 1]
    /\ expect' = [expect EXCEPT ![c] = now + Patience]
    /\ UNCHANGED <<now, until, writer, hold>>
Acquire(c, script, lease) == Send(c, script, lease) /\ UNCHANGED <<reads, writes>>
StopReading(c) == Send(c, "read_release", 0) /\ reads' = [reads EXCEPT ![c] = 0] /\ UNCHANGED writes
StopWriting(c) == Send(c, "write_release", 0) /\ writes' = [writes EXCEPT ![c] = 0] /\ UNCHANGED reads

(* The server runs one, and its sender hears the answer at once, or never. *)
Ran(m, ok, heard) ==
    LET c == m.client
        end == IF ok THEN m.at + m.lease ELSE 0
    IN /\ net' = net \ {m}
       /\ IF ~heard \/ pending[c] # m.n THEN UNCHANGED <<pending, reads, writes>>
          ELSE /\ pending' = [pending EXCEPT ![c] = 0]
               /\ reads' = IF m.script \in {"read_acquire", "read_renew"}
                           THEN [reads EXCEPT ![c] = IF ok THEN Later(@, end) ELSE 0] ELSE reads
               /\ writes' = IF m.script = "write_acquire"
                            THEN [writes EXCEPT ![c] = IF ok THEN Later(@, end) ELSE 0] ELSE writes
TooLate(m) == Refuse /\ now > m.notAfter
(* With readers only, the lock lasts as long as the longest of their holds. *)
LeaveToReaders(holds) ==
    LET left == {c \in Clients : holds[c] > now}
    IN /\ hold' = holds /\ writer' = Nobody
       /\ until' = IF left = {} THEN 0 ELSE IF Longest THEN Max({holds[c] : c \in left})
                   ELSE CHOOSE x \in {holds[c] : c \in left} : \A y \in {holds[c] : c \in left} : x <= y

read_acquire(m, heard) ==
    LET c == m.client
        ok == ~TooLate(m) /\ Writer \in {Nobody, c}
        fresh == [d \in Clients |-> IF Exists THEN hold[d] ELSE 0]
    IN /\ m.script = "read_acquire"
       /\ Ran(m, ok, heard)
       /\ IF ~ok THEN UNCHANGED <<until, writer, hold>>
          ELSE /\ hold' = [fresh EXCEPT ![c] = IF Raises THEN Later(@, now + m.lease) ELSE now + m.lease]
               /\ until' = IF Exists /\ Longest THEN Later(until, now + m.lease) ELSE now + m.lease
               /\ writer' = Writer
write_acquire(m, heard) ==
    LET c == m.client
        ok == ~TooLate(m) /\ (Writer = c \/ (Writer = Nobody /\ Readers = {}))
    IN /\ m.script = "write_acquire"
       /\ Ran(m, ok, heard)
       /\ IF ~ok THEN UNCHANGED <<until, writer, hold>>
          ELSE /\ writer' = c
               /\ until' = IF Writer = c THEN Later(until, now + m.lease) ELSE now + m.lease
               /\ hold' = IF Writer = c THEN hold ELSE [d \in Clients |-> 0]
read_release(m, heard) ==
    LET c == m.client
        holds == [hold EXCEPT ![c] = 0]
    IN /\ m.script = "read_release"
       /\ Ran(m, FALSE, heard)
       /\ IF TooLate(m) \/ ~Exists \/ hold[c] = 0 THEN UNCHANGED <<until, writer, hold>>
          ELSE IF Writer # Nobody THEN hold' = holds /\ UNCHANGED <<until, writer>>
          ELSE LeaveToReaders(holds)
write_release(m, heard) ==
    LET c == m.client
    IN /\ m.script = "write_release"
       /\ Ran(m, FALSE, heard)
       /\ IF TooLate(m) \/ Writer # c THEN UNCHANGED <<until, writer, hold>>
          ELSE LeaveToReaders([d \in Clients |-> IF Downgrade THEN hold[d] ELSE 0])
(* The keeper's: it proves what is there, and makes nothing. *)
read_renew(m, heard) ==
    LET c == m.client
        ok == ~TooLate(m) /\ c \in Readers
    IN /\ m.script = "read_renew"
       /\ Ran(m, ok, heard)
       /\ IF ~ok THEN UNCHANGED <<until, writer, hold>>
          ELSE /\ hold' = [hold EXCEPT ![c] = Later(@, now + m.lease)]
               /\ until' = Later(until, now + m.lease) /\ UNCHANGED writer

Lose(m) == net' = net \ {m} /\ UNCHANGED <<now, until, writer, hold, sent, pending, expect, reads, writes>>
Tick == now < MaxTime /\ now' = now + 1
        /\ UNCHANGED <<until, writer, hold, net, sent, pending, expect, reads, writes>>

Next == \/ Tick
        \/ \E c \in Clients : \/ \E lease \in Leases : \/ Acquire(c, "read_acquire", lease)
                                                       \/ /\ reads[c] <= now
                                                          /\ Acquire(c, "write_acquire", lease)
                                                       \/ reads[c] > now /\ Acquire(c, "read_renew", lease)
                              \/ StopReading(c) \/ StopWriting(c)
        \/ \E m \in net : \/ Lose(m)
                          \/ \E heard \in BOOLEAN :
                                /\ \/ read_acquire(m, heard) \/ write_acquire(m, heard) \/ read_renew(m, heard)
                                   \/ read_release(m, heard) \/ write_release(m, heard)
                                /\ UNCHANGED <<now, sent, expect>>
Spec == Init /\ [][Next]_vars

Alone == \A c, d \in Clients : (c # d /\ writes[c] > now) => (writes[d] <= now /\ reads[d] <= now)
There == \A c \in Clients : (writes[c] > now => Writer = c) /\ (reads[c] > now => c \in Readers)
=============================================================================
