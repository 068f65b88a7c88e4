/* Which thread drives a connection that callers share, and how one that does not come back is replaced.
 *
 *   begin             hfi_exec_run() of src/task/task.c: the caller looks at what was posted, sends, or leaves
 *   drive             become_driver() of src/net/driver/conn_driver.c
 *   follow            follow() there
 *   driving           hfi_driver_wait() of driver_wait.c: hfi_exec_poll_begin(), poll(), hfi_exec_poll_end()
 *   reading           hfi_conn_on_ready() of src/net/conn/receive.c: recv(), complete_requests()
 *   release()         hfi_driver_release_locked(): the first follower that has no work is named driver
 *   keeper            hfi_driver_stall_fired() of driver_stall.c; preempting is hfi_exec_preempt()
 *
 * One step is what happens under a mutex once taken: the connection's ("conn"), with what is called under it, or an
 * executor's ("exec"); or one system call, or a load. The keeper has the connection's mutex for two steps, and takes the
 * driver's executor twice. A thread may rest between two steps for as long as the schedule likes; STALLS of them stop for
 * ever, in a poll or as a follower. One caller gets other work while it waits, and leaves. Nobody may be left waiting for an
 * answer that can be read, and no two threads may read. Left out: drivers in recv(), listeners, connections that end, the
 * keeper as a driver. The keeper looks once, and does not count polls: that it looks twice, and at one poll, only spares
 * drivers that are slow.
 *
 * small: CALLERS=3 REQUESTS=1 STALLS=1 CANCELS=1
 * large: CALLERS=3 REQUESTS=1 STALLS=2 CANCELS=1
 * rules: IN_POLL=0 FINDS_OUT=0 EXPECTED=0 STALLED=0 PASSES_ON=0 IDLE_ONLY=0
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
#ifndef IDLE_ONLY
#define IDLE_ONLY 1 /* a caller polls, and so stays the driver, only without work of its own */
#endif
#define ALL (CALLERS + 1)

bool mtx = false;    /* the keeper has the connection's mutex */
byte driver = 0;     /* 0: nobody */
byte in_flight = 0;
byte reader = 0;     /* who is between recv() and complete_requests() */
byte stalls = 0, cancels = 0;
/* Of an executor: a reply or other work was posted; woken; the eventfd of its poll is readable. */
bool ready[ALL], work[ALL], woken[ALL], wake_sent[ALL];
bool following[ALL], polling[ALL], replaced[ALL];
chan sent = [CALLERS * REQUESTS] of { byte };
chan socket = [CALLERS * REQUESTS] of { byte };

#define HAS_WORK(c) (ready[c] || work[c] || woken[c])

/* wake_locked(): whoever sleeps on its futex finds its work; whoever polls is told by its eventfd. */
inline wake(c) {
    if
    :: polling[c] -> wake_sent[c] = true
    :: else
    fi
}

/* Under the connection's mutex. */
inline release() {
    driver = 0;
    i = 1;
    do
    :: i <= CALLERS && following[i] && !HAS_WORK(i) -> driver = i; woken[i] = true; break
    :: i <= CALLERS && !(following[i] && !HAS_WORK(i)) -> i++
    :: i > CALLERS -> break
    od;
    i = 0
}

proctype caller(byte c) {
    byte n = 0, x = 0, i = 0;
    bool waits = false, readable = false;
begin:
    atomic { /* exec */
        woken[c] = false;
        if
        :: work[c] -> goto gone
        :: !work[c] && ready[c] -> ready[c] = false; waits = false
        :: else
        fi
    };
    if
    :: waits -> goto drive
    :: !waits && n == REQUESTS -> goto gone
    :: else
    fi;
    atomic { !mtx -> n++; waits = true; in_flight++; sent!c }; /* conn */
drive:
    atomic { /* conn */
        !mtx ->
        if
        :: in_flight == 0 -> goto asleep
        :: in_flight > 0 && driver == 0 -> driver = c; goto driving
        :: else -> following[c] = true
        fi
    };
    /* follow */
    if
    :: HAS_WORK(c)
    :: atomic { stalls < STALLS -> stalls++; goto end_stalled }
    fi;
    if
    :: !following[c] -> goto begin /* its answer came */
    :: else
    fi;
    atomic { /* conn, and exec under it */
        !mtx ->
        following[c] = false;
        if
        :: driver == c ->
            woken[c] = false;
            if
            :: !HAS_WORK(c) -> goto driving
            :: HAS_WORK(c) && PASSES_ON -> release()
            :: else
            fi
        :: else
        fi
    };
    goto begin;
asleep:
    HAS_WORK(c) -> goto begin;
driving:
    atomic { /* exec: begins a poll */
        if
        :: HAS_WORK(c) && IDLE_ONLY -> goto leave
        :: else -> polling[c] = true; wake_sent[c] = false
        fi
    };
    if /* poll() */
    :: atomic { nempty(socket) || wake_sent[c] -> readable = nempty(socket) }
    :: atomic { stalls < STALLS -> stalls++; goto end_stalled }
    fi;
    atomic { /* exec: ends it */
        polling[c] = false;
        wake_sent[c] = false;
        if
        :: replaced[c] && FINDS_OUT -> replaced[c] = false; readable = false; goto leave
        :: else -> replaced[c] = false
        fi
    };
    if
    :: !readable -> goto driving
    :: else -> readable = false
    fi;
    atomic { /* recv() */
        assert(reader == 0);
        if
        :: nempty(socket) -> socket?x; reader = c
        :: empty(socket) -> goto driving
        fi
    };
    atomic { /* conn */
        !mtx ->
        reader = 0;
        in_flight--;
        following[x] = false;
        ready[x] = true;
        wake(x);
        x = 0
    };
    goto driving;
leave:
    atomic { /* conn */
        !mtx ->
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

/* Somebody depends on the driver. */
#define MATTERS (following[1] || following[2] || following[CALLERS - 1] || following[CALLERS])
#define STUCK(c) ((polling[c] || !IN_POLL) && (wake_sent[c] || nempty(socket)))

proctype keeper() {
    byte i = 0;
end_keeper:
    do
    :: atomic { EXPECTED && driver != 0 && following[driver] && MATTERS -> release() }
    :: atomic { STALLED && driver != 0 && !following[driver] && MATTERS && STUCK(driver) -> mtx = true };
       atomic { /* still conn; exec again, which may have gone on meanwhile */
           if
           :: polling[driver] || !IN_POLL ->
               replaced[driver] = true;
               wake(driver);
               release()
           :: else
           fi;
           mtx = false
       }
    od
}

proctype server() {
    byte x;
end_server:
    do
    :: atomic { sent?x -> socket!x; x = 0 }
    od
}

/* A cancel, or a timer: of one caller. */
proctype world() {
end_world:
    do
    :: atomic { cancels < CANCELS && !work[2] -> cancels++; work[2] = true; wake(2) } /* exec */
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
