/* A lock on a quorum of three servers: late commands, members that restart without their data, and the restart guard.
 *
 *   send      src/joint/quorum/ballot.c asks a server; the second time it renews, or acquires again
 *   deliver   plain_acquire there, later than it was sent
 *   valid     a vote's end: hfi_vote_valid_until_ms() of src/joint/quorum/quorum_validity.c
 *   of_age    hfi_votes_is_young() there: a server that started less than GUARD ago has no vote
 *   belief    the client's deadline: until when a majority of votes is valid. All votes of a request end together
 *
 * Time is discrete, and the clocks run alike. Servers restart RESTARTS times. A client asks all servers at once, REQUESTS
 * times at most; what it sends to each may wait for as long as the schedule likes, and may arrive when nobody waits for it:
 * what is left of its first request may arrive after its second.
 *
 * Clients are alike, and so are servers. So client 1 asks first, with one restart it is server 0 that restarts, and of the
 * other two server 1 is asked before server 2: every other order is one of these with other numbers. A client counts on a majority
 * at once, which is when it does most harm; and what cannot matter any more is forgotten.
 *
 * With GUARD=1 a vote counts for one tick, so a second request does not lengthen a belief: it acquires again. REQUESTS=2 with
 * LEASE=3 GUARD=2 MAXT=2 needs over 3 GB.
 *
 * small: LEASE=2 GUARD=1 MAXT=2 RESTARTS=1 REQUESTS=1
 * large: LEASE=3 GUARD=2 MAXT=3 RESTARTS=1 REQUESTS=1
 * large: LEASE=2 GUARD=1 MAXT=2 RESTARTS=1 REQUESTS=2
 * rules: AGE=0 CAP=0 MAJORITY=1
 */
#ifndef AGE
#define AGE 1 /* a server that restarted has no vote before the guard is over */
#endif
#ifndef CAP
#define CAP 1 /* a vote counts for no longer than the guard, however long its lease is */
#endif
#ifndef MAJORITY
#define MAJORITY 2
#endif
#define N 3
#define COUNTS (CAP && GUARD < LEASE -> GUARD : LEASE)

byte now = 0;
byte owner[N];    /* 0: free, else client 1 or 2 */
byte until_[N];   /* the expiry at the server */
byte born[N];     /* when it started; 0: long ago */
byte belief[3];   /* until when a client counts on the lock; 0: it does not */
byte valid[9];    /* of client c at server s, [c * 3 + s]: the end of its vote; 0: none */
byte sent_at[3];  /* when a client last asked all servers; one more than the time */
byte requests[3]; /* how many times */
byte pending = 0; /* bits: the last command has not reached the server */
byte old = 0;     /* bits: nor has one whose answer is worth nothing, */
byte older = 0;   /* nor a second such */
bool asked = false; /* server 1 was reached */
byte restarts = 0;

#define AT(c, s) ((c) * 3 + (s))
#define BIT(c, s) (1 << (((c) - 1) * 3 + (s)))
#define ALL_OF(c) (7 << (((c) - 1) * 3))
#define OF_AGE(s) (!AGE || born[s] == 0 || now - born[s] >= GUARD)
#define MAY_REACH(s) (s != 2 || asked || RESTARTS > 1)

/* Nobody waits for the answers to a client's last request any more. */
inline stop_waiting(c) {
    assert((older & old & pending & ALL_OF(c)) == 0);
    older = older | (old & pending & ALL_OF(c));
    old = old | (pending & ALL_OF(c));
    pending = pending & ~ALL_OF(c);
    sent_at[c] = 0;
    valid[AT(c, 0)] = 0;
    valid[AT(c, 1)] = 0;
    valid[AT(c, 2)] = 0
}

inline send(c) {
    d_step {
        stop_waiting(c);
        sent_at[c] = now + 1;
        requests[c]++;
        pending = pending | ALL_OF(c)
    }
}

#define VOTES(c) ((valid[AT(c, 0)] > 0) + (valid[AT(c, 1)] > 0) + (valid[AT(c, 2)] > 0))

/* The server decides; the answer reaches the client in the same step, since a later one is worth less. */
inline deliver(c, s) {
    d_step {
        pending = pending & ~BIT(c, s);
        asked = asked || s == 1;
        if
        :: owner[s] == 0 || owner[s] == c ->
            owner[s] = c;
            until_[s] = now + LEASE;
            if
            :: OF_AGE(s) && sent_at[c] - 1 + COUNTS > now -> valid[AT(c, s)] = sent_at[c] - 1 + COUNTS
            :: else
            fi
        :: else
        fi;
        if
        :: VOTES(c) >= MAJORITY ->
            belief[c] = sent_at[c] - 1 + COUNTS;
            stop_waiting(c);
            /* Beliefs only end elsewhere. */
            assert(!(belief[1] > now && belief[2] > now))
        :: VOTES(c) < MAJORITY && (pending & ALL_OF(c)) == 0 -> stop_waiting(c)
        :: else
        fi
    }
}

/* Nobody waits for its answer. */
inline deliver_old(c, s) {
    d_step {
        old = (old & ~BIT(c, s)) | (older & BIT(c, s));
        older = older & ~BIT(c, s);
        asked = asked || s == 1;
        if
        :: owner[s] == 0 || owner[s] == c ->
            owner[s] = c;
            until_[s] = now + LEASE
        :: else
        fi
    }
}

#define REACHES(bits, c, s) ((bits & BIT(c, s)) != 0 && MAY_REACH(s))

/* It asks at any time; what it sends to each server arrives at any later time, or never. */
proctype client(byte c) {
end_client:
    do
    :: requests[c] < REQUESTS && (c == 1 || requests[1] > 0) -> send(c)
    :: REACHES(pending, c, 0) -> deliver(c, 0)
    :: REACHES(pending, c, 1) -> deliver(c, 1)
    :: REACHES(pending, c, 2) -> deliver(c, 2)
    :: REACHES(old, c, 0) -> deliver_old(c, 0)
    :: REACHES(old, c, 1) -> deliver_old(c, 1)
    :: REACHES(old, c, 2) -> deliver_old(c, 2)
    od
}

/* What is over is forgotten, so that it does not make states different. */
inline tick() {
    d_step {
        now++;
        i = 0;
        do
        :: i < 9 ->
            if :: valid[i] <= now -> valid[i] = 0 :: else fi;
            if :: i < 3 && until_[i] <= now -> owner[i] = 0; until_[i] = 0 :: else fi;
            if :: i < 3 && belief[i] <= now -> belief[i] = 0 :: else fi;
            if :: i < 3 && born[i] > 0 && now - born[i] >= GUARD -> born[i] = 0 :: else fi;
            i++
        :: else -> break
        od;
        i = 0;
        if :: sent_at[1] != 0 && sent_at[1] - 1 + COUNTS <= now -> stop_waiting(1) :: else fi;
        if :: sent_at[2] != 0 && sent_at[2] - 1 + COUNTS <= now -> stop_waiting(2) :: else fi
    }
}

inline restart(s) {
    d_step {
        owner[s] = 0;
        until_[s] = 0;
        born[s] = now;
        restarts++
    }
}

proctype world() {
    byte i;
end_world:
    do
    :: now < MAXT -> tick()
    :: restarts < RESTARTS && now > 0 && born[0] != now -> restart(0)
    :: RESTARTS > 1 && restarts < RESTARTS && now > 0 && born[1] != now -> restart(1)
    :: RESTARTS > 1 && restarts < RESTARTS && now > 0 && born[2] != now -> restart(2)
    od
}

init { atomic { run client(1); run client(2); run world() } }
