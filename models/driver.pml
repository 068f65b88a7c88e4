/* Which thread drives a connection that callers share, and how one that does not come back is replaced.
 *
 *   drive, follow     become_driver() and follow() of src/net/driver/conn_driver.c
 *   driving           hfi_driver_wait() of driver_wait.c: begins a poll, polls, ends it, reads
 *   release           hfi_driver_release_locked(): the first follower that has no work is named driver
 *   keeper            check_driver() of driver_stall.c
 *
 * The mutex of the connection is an atomic step, that of an executor, too. A thread may rest between two steps for as long
 * as the schedule likes; STALLS of them stop for ever, in a poll or as a follower. One caller gets other work while
 * it waits, and leaves. Nobody may be left waiting for an answer that can be read, and no two threads may read. Left out:
 * drivers in recv(), listeners, connections that end. The keeper looks once: that it looks twice only spares drivers that
 * are slow.
 *
 * small: CALLERS=3 REQUESTS=1 STALLS=1 CANCELS=1
 * large: CALLERS=3 REQUESTS=1 STALLS=1 CANCELS=1
 * rules: IN_POLL=0 FINDS_OUT=0 EXPECTED=0 STALLED=0 PASSES_ON=0
 */
#ifndef IN_POLL
#define IN_POLL 1 /* a driver is replaced only while it polls: there it has read nothing */
#endif
#ifndef FINDS_OUT
#define FINDS_OUT 1 /* a driver that was replaced in its poll touches nothing */
#endif
#ifndef EXPECTED
#define EXPECTED 1 /* so is a follower that was named and does not come */
#endif
#ifndef STALLED
#define STALLED 1 /* the keeper replaces a driver that has something to do and does not do it */
#endif
#ifndef PASSES_ON
#define PASSES_ON 1 /* a follower that leaves passes on what it was named */
#endif
#define ALL (CALLERS + 1)

byte driver = 0;    /* 0: nobody */
byte reader = 0;    /* who is between the first byte and the last */
byte stalls = 0, cancels = 0;
bool done[ALL], work[ALL], woken[ALL], following[ALL], polling[ALL], replaced[ALL];
chan sent = [CALLERS * REQUESTS] of { byte };
chan socket = [CALLERS * REQUESTS] of { byte };

/* In one step: the driver leaves, and names another. */
inline release() {
    driver = 0;
    i = 1;
    do
    :: i <= CALLERS && !(following[i] && !done[i] && !work[i] && !woken[i]) -> i++
    :: i <= CALLERS && following[i] && !done[i] && !work[i] && !woken[i] -> driver = i; woken[i] = true; break
    :: i > CALLERS -> break
    od;
    i = 0
}

#define READY(c) (nempty(socket) || woken[c] || work[c])

proctype caller(byte c) {
    byte n = 0, x = 0, i = 0;
begin:
    if
    :: n == REQUESTS || work[c] -> goto gone
    :: else -> atomic { n++; done[c] = false; sent!c }
    fi;
drive:
    atomic {
        if
        :: done[c] || work[c] -> goto begin
        :: else ->
            if
            :: driver == 0 -> driver = c; goto driving
            :: else -> following[c] = true
            fi
        fi
    };
    if
    :: woken[c]
    :: stalls < STALLS -> stalls++; goto end_stalled
    fi;
    atomic {
        woken[c] = false;
        if
        :: !following[c] -> goto drive /* its answer came */
        :: else -> following[c] = false
        fi;
        if
        :: driver == c && !done[c] && !work[c] -> goto driving
        :: driver == c && (done[c] || work[c]) && PASSES_ON -> release()
        :: else
        fi
    };
    goto drive;
driving:
    atomic {
        if
        :: done[c] || work[c] -> goto leave
        :: else -> polling[c] = true
        fi
    };
    if
    :: READY(c)
    :: stalls < STALLS -> stalls++; goto end_stalled
    fi;
    atomic {
        polling[c] = false;
        woken[c] = false;
        if
        :: replaced[c] && FINDS_OUT -> replaced[c] = false; goto drive
        :: else -> replaced[c] = false
        fi
    };
    atomic {
        if
        :: nempty(socket) -> assert(reader == 0); reader = c
        :: else -> goto driving
        fi
    };
    atomic {
        socket?x;
        reader = 0;
        done[x] = true;
        following[x] = false;
        woken[x] = x != c
    };
    goto driving;
leave:
    atomic {
        if
        :: driver == c -> release()
        :: else
        fi
    };
    goto begin;
end_stalled:
    false;
gone:
    skip
}

/* Somebody else depends on the driver. */
#define MATTERS (following[1] || following[2] || following[CALLERS - 1] || following[CALLERS])

proctype keeper() {
    byte i = 0;
end_keeper:
    do
    :: atomic { EXPECTED && driver != 0 && following[driver] && woken[driver] && MATTERS -> release() }
    :: atomic {
           STALLED && driver != 0 && !following[driver] && MATTERS && (polling[driver] || !IN_POLL) && READY(driver) ->
           replaced[driver] = true;
           woken[driver] = true;
           release()
       }
    od
}

proctype server() {
    byte x;
end_server:
    do
    :: atomic { sent?x -> socket!x }
    od
}

/* A cancel, or a timer: of one caller. */
proctype world() {
end_world:
    do
    :: atomic { cancels < CANCELS && !work[2] -> cancels++; work[2] = true; woken[2] = true }
    od
}

init {
    byte c = 1;
    atomic {
        do
        :: c <= CALLERS -> run caller(c); c++
        :: else -> break
        od;
        run keeper();
        run server();
        run world()
    }
}
