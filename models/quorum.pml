/* A lock on a quorum of three servers: late commands, members that restart without their data, and the restart guard.
 *
 *   send      src/joint/quorum/ballot.c asks a server
 *   deliver   plain_acquire there, later than it was sent
 *   valid     a vote's end: hfi_vote_valid_until_ms() of src/joint/quorum/quorum_validity.c
 *   of_age    hfi_votes_is_young() there: a server that started less than GUARD ago has no vote
 *   belief    the client's deadline: until when a majority of votes is valid
 *
 * Time is discrete, and the clocks run alike. Servers restart RESTARTS times. A client asks all servers at once;
 * what it sends to each may wait for as long as the schedule likes, and may arrive when nobody waits for it.
 *
 * small: LEASE=2 GUARD=1 MAXT=2 RESTARTS=1
 * large: LEASE=3 GUARD=2 MAXT=3 RESTARTS=1
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
byte sent_at[3];  /* when a client asked all servers; one more than the time */
byte arrived = 0; /* bits: the command has reached the server */
byte restarts = 0;

#define AT(c, s) ((c) * 3 + (s))
#define BIT(c, s) (1 << (((c) - 1) * 3 + (s)))
#define OF_AGE(s) (!AGE || born[s] == 0 || now - born[s] >= GUARD)

/* The server decides; the answer reaches the client in the same step, since a later one is worth less. */
inline deliver(c, s) {
    d_step {
        arrived = arrived | BIT(c, s);
        if
        :: owner[s] == 0 || owner[s] == c ->
            owner[s] = c;
            until_[s] = now + LEASE;
            if
            :: OF_AGE(s) && sent_at[c] - 1 + COUNTS > now -> valid[AT(c, s)] = sent_at[c] - 1 + COUNTS
            :: else
            fi
        :: else
        fi
    }
}

/* All votes of a client end at the same time, so its deadline is the end of any of them. */
inline decide(c) {
    d_step {
        if
        :: (valid[AT(c, 0)] > 0) + (valid[AT(c, 1)] > 0) + (valid[AT(c, 2)] > 0) >= MAJORITY -> belief[c] = sent_at[c] - 1 + COUNTS
        :: else
        fi;
        /* Beliefs only end elsewhere. */
        assert(!(belief[1] > now && belief[2] > now))
    }
}

/* It asks at any time; what it sends to each server arrives at any later time, or never. */
proctype client(byte c) {
    do
    :: sent_at[c] == 0 -> sent_at[c] = now + 1
    :: sent_at[c] != 0 && (arrived & BIT(c, 0)) == 0 -> deliver(c, 0)
    :: sent_at[c] != 0 && (arrived & BIT(c, 1)) == 0 -> deliver(c, 1)
    :: sent_at[c] != 0 && (arrived & BIT(c, 2)) == 0 -> deliver(c, 2)
    :: belief[c] == 0 && sent_at[c] != 0 -> decide(c)
    :: now >= MAXT -> break
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
            i++
        :: else -> break
        od;
        i = 0
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
    do
    :: now < MAXT -> tick()
    :: restarts < RESTARTS && now > 0 && born[0] != now -> restart(0)
    :: restarts < RESTARTS && now > 0 && born[1] != now -> restart(1)
    :: restarts < RESTARTS && now > 0 && born[2] != now -> restart(2)
    :: now >= MAXT -> break
    od
}

init { atomic { run client(1); run client(2); run world() } }
