/* The fair lock's scripts, row by row: the decision tables of docs/scripts.md.
 *
 * Data only, played by test_fair_scripts.c. `me` calls; `a`, `b` and `c` are waiters of ours,
 * `java`, `j2` and `j3` of Java clients, `you` is a holder. Horizon 60 s, Java's wait 300 s, confirm 3
 * s. */
#include "fair_rows.h"

#define ACQUIRE "acquire"
#define FIRST "0 me 30000 0 1 3000 0 60000 300000"   /* waits, listens, has no ticket */
#define DEAF "0 me 30000 0 1 0 0 10000 300000"       /* not listening yet */
#define ONCE "0 me 30000 0 0 0 0 10000 300000"       /* tries once */
#define AGAIN "0 me 30000 0 1 3000 #-5 60000 300000" /* with a ticket */
#define NESTED "0 me 30000 1 1 3000 0 60000 300000"  /* holds it once */
#define HELD_BY_YOU "HSET f you 1; PEXPIRE f 20000; "
#define A "RPUSH q a; ZADD z @+60000 a; HSET r a 3000_#-90_@+60000; "
#define B "RPUSH q b; ZADD z @+60000 b; HSET r b 3000_#-80_@+60000; "
#define A_DEAF "RPUSH q a; ZADD z @+60000 a; HSET r a 0_#-90_@+60000; "
#define A_DEAD "RPUSH q a; ZADD z @-2 a; HSET r a 3000_#-90_@-1; "
#define ME "RPUSH q me; ZADD z @+7000 me; HSET r me 0_#-50_@+7000; "
#define JAVA "RPUSH q java; ZADD z @+300000 java; "
#define J2 "RPUSH q j2; ZADD z @+600000 j2; "
#define JAVA_DEAD "RPUSH q java; ZADD z @+0 java; "
#define NO_SCORE "RPUSH q java; "
#define A_IN "q[a] z{a=@+60000} r{a=3000 #-90 @+60000}"
#define B_IN "q[b] z{b=@+60000} r{b=3000 #-80 @+60000}"

const struct fair_row fair_rows[] = {
    /* ---- acquire: held by us ---- */
    {"acquire_free", NULL, NULL, ACQUIRE, FIRST, "1 1", "f{me=1}", 30000, NULL, NULL},
    {"acquire_free_in_time", NULL, NULL, ACQUIRE, "@+0 me 30000 0 1 3000 0 60000 300000", "1 1",
     "f{me=1}", 30000, NULL, NULL},
    {"acquire_too_late", A, "a", ACQUIRE, "@-1 me 30000 0 1 3000 0 60000 300000", "-3 0", A_IN, 0,
     NULL, NULL},
    {"acquire_resend", "HSET f me 1; PEXPIRE f 5000", NULL, ACQUIRE, FIRST, "1 1", "f{me=1}", 30000,
     NULL, NULL},
    {"acquire_confirms_a_grant_and_leaves_the_line", "HSET f me 1; PEXPIRE f 3000; " ME B, "b",
     ACQUIRE, AGAIN, "1 1", "f{me=1} " B_IN, 30000, NULL, NULL},
    {"acquire_takes_over_a_leftover", "HSET f me 3; PEXPIRE f 90000", NULL, ACQUIRE, FIRST, "1 1",
     "f{me=1}", 30000, NULL, NULL},
    {"reenter", "HSET f me 1; PEXPIRE f 5000; " A, "a", ACQUIRE, NESTED, "1 2", "f{me=2} " A_IN,
     30000, NULL, NULL},
    {"reenter_never_shortens", "HSET f me 1; PEXPIRE f 90000", NULL, ACQUIRE, NESTED, "1 2",
     "f{me=2}", 90000, NULL, NULL},
    {"reenter_resend", "HSET f me 2; PEXPIRE f 5000", NULL, ACQUIRE, NESTED, "1 2", "f{me=2}",
     30000, NULL, NULL},
    {"reenter_mismatch", "HSET f me 5; PEXPIRE f 5000", NULL, ACQUIRE, NESTED, "-2 5", "f{me=5}",
     5000, NULL, NULL},
    {"reenter_gone", A, "a", ACQUIRE, NESTED, "-1 0", A_IN, 0, NULL, NULL},
    {"reenter_anothers", HELD_BY_YOU, NULL, ACQUIRE, NESTED, "-1 0", "f{you=1}", 20000, NULL, NULL},

    /* ---- acquire: into the line ---- */
    {"queue_first", HELD_BY_YOU, NULL, ACQUIRE, FIRST, "0 ~20000 1 #+0 #+0 0",
     "f{you=1} q[me] z{me=@+60000} r{me=3000 #+0 @+60000}", 20000, NULL, NULL},
    {"queue_deaf", HELD_BY_YOU, NULL, ACQUIRE, DEAF, "0 ~20000 1 #+0 #+0 0",
     "f{you=1} q[me] z{me=@+10000} r{me=0 #+0 @+10000}", 20000, NULL, NULL},
    {"queue_behind_ours_of_a_later_ticket",
     HELD_BY_YOU "RPUSH q a; ZADD z @+90000 a; HSET r a 3000_#+7_@+60000", NULL, ACQUIRE, FIRST,
     "0 ~20000 2 #+8 #+0 0",
     "f{you=1} q[a me] z{a=@+90000 me=@+90000} r{a=3000 #+7 @+60000 me=3000 #+8 @+60000}", 20000,
     NULL, "f{you=1} q[a me] z{a=@+90000 me=@+60000} r{a=3000 #+7 @+60000 me=3000 #+8 @+60000}"},
    {"queue_behind_java_adds_its_wait", HELD_BY_YOU JAVA, NULL, ACQUIRE, FIRST,
     "0 ~20000 2 #+0 #+0 0",
     "f{you=1} q[java me] z{java=@+300000 me=@+360000} r{me=3000 #+0 @+60000}", 20000, NULL, NULL},
    {"queue_behind_a_late_java_score", HELD_BY_YOU "RPUSH q java; ZADD z @+999000 java", NULL,
     ACQUIRE, FIRST, "0 ~20000 2 #+0 #+0 0",
     "f{you=1} q[java me] z{java=@+999000 me=@+999000} r{me=3000 #+0 @+60000}", 20000, NULL, NULL},
    {"poll_keeps_place_and_ticket", HELD_BY_YOU A ME, "a", ACQUIRE, FIRST, "0 ~20000 2 #-50 #+0 0",
     "f{you=1} q[a me] z{a=@+60000 me=@+60000} r{a=3000 #-90 @+60000 me=3000 #-50 @+60000}", 20000,
     NULL, NULL},
    {"poll_behind_java_keeps_a_larger_score",
     HELD_BY_YOU JAVA "RPUSH q me; ZADD z @+900000 me; HSET r me 3000_#-50_@+7000", NULL, ACQUIRE,
     AGAIN, "0 ~20000 2 #-50 #+0 0",
     "f{you=1} q[java me] z{java=@+300000 me=@+900000} r{me=3000 #-50 @+60000}", 20000, NULL, NULL},
    {"poll_sweeps_dead_heads", HELD_BY_YOU A_DEAD JAVA_DEAD ME, NULL, ACQUIRE, FIRST,
     "0 ~20000 1 #-50 #+0 0", "f{you=1} q[me] z{me=@+60000} r{me=3000 #-50 @+60000}", 20000, NULL,
     NULL},
    {"poll_says_that_it_lives_before_it_sweeps",
     HELD_BY_YOU "RPUSH q me; ZADD z @-5 me; HSET r me 3000_#-50_@-5", NULL, ACQUIRE, AGAIN,
     "0 ~20000 1 #-50 #+0 0", "f{you=1} q[me] z{me=@+60000} r{me=3000 #-50 @+60000}", 20000, NULL,
     NULL},
    {"poll_repairs_the_score_of_a_live_head",
     HELD_BY_YOU "RPUSH q a; ZADD z @-9 a; HSET r a 3000_#-90_@+60000; " ME, NULL, ACQUIRE, FIRST,
     "0 ~20000 2 #-50 #+0 0",
     "f{you=1} q[a me] z{a=@+60000 me=@+60000} r{a=3000 #-90 @+60000 me=3000 #-50 @+60000}", 20000,
     NULL, NULL},
    {"back_by_ticket_before_a_later_one", HELD_BY_YOU A B, NULL, ACQUIRE,
     "0 me 30000 0 1 3000 #-85 60000 300000", "0 ~20000 2 #-85 #+0 0",
     "f{you=1} q[a me b] z{a=@+60000 b=@+60000 me=@+60000} "
     "r{a=3000 #-90 @+60000 b=3000 #-80 @+60000 me=3000 #-85 @+60000}",
     20000, NULL, NULL},
    {"back_by_ticket_before_java", HELD_BY_YOU A JAVA, NULL, ACQUIRE, AGAIN, "0 ~20000 2 #-5 #+0 0",
     "f{you=1} q[a me java] z{a=@+60000 java=@+300000 me=@+60000} "
     "r{a=3000 #-90 @+60000 me=3000 #-5 @+60000}",
     20000, NULL, NULL},
    {"back_by_ticket_at_the_end", HELD_BY_YOU A, NULL, ACQUIRE, AGAIN, "0 ~20000 2 #-5 #+0 0",
     "f{you=1} q[a me] z{a=@+60000 me=@+60000} r{a=3000 #-90 @+60000 me=3000 #-5 @+60000}", 20000,
     NULL, NULL},
    {"a_deadline_without_a_place", HELD_BY_YOU A "ZADD z @+60000 me", NULL, ACQUIRE, FIRST,
     "0 ~20000 2 #+0 #+0 0",
     "f{you=1} q[a me] z{a=@+60000 me=@+60000} r{a=3000 #-90 @+60000 me=3000 #+0 @+60000}", 20000,
     NULL, NULL},

    /* ---- acquire: the lock is free ---- */
    {"free_and_first", ME B, "b", ACQUIRE, AGAIN, "1 1", "f{me=1} " B_IN, 30000, NULL, NULL},
    {"free_and_somebody_listens_in_front", A ME, "a", ACQUIRE, AGAIN, "0 ~3000 1 #-50 #+0 0",
     "f{a=1} q[me] z{me=@+60000} r{me=3000 #-50 @+60000}", 3000, "a:#+0", NULL},
    {"free_and_nobody_hears_the_one_in_front", A ME, NULL, ACQUIRE, AGAIN, "1 1", "f{me=1}", 30000,
     NULL, NULL},
    {"free_and_java_in_front", JAVA ME, "java", ACQUIRE, AGAIN, "0 -2 2 #-50 #+0 60000",
     "q[java me] z{java=@+300000 me=@+360000} r{me=3000 #-50 @+60000}", 0, "java:0",
     "q[java me] z{java=@+300000 me=@+360000} r{me=3000 #-50 @+60000}"},
    {"free_and_a_deaf_one_in_front", A_DEAF ME, "a", ACQUIRE, AGAIN, "0 -2 2 #-50 #+0 60000",
     "q[a me] z{a=@+60000 me=@+60000} r{a=0 #-90 @+60000 me=3000 #-50 @+60000}", 0, "a:0", NULL},
    {"free_and_only_dead_in_front", A_DEAD JAVA_DEAD NO_SCORE ME, "a java", ACQUIRE, AGAIN, "1 1",
     "f{me=1}", 30000, NULL, NULL},

    /* ---- acquire: once ---- */
    {"once_free", NULL, NULL, ACQUIRE, ONCE, "1 1", "f{me=1}", 30000, NULL, NULL},
    {"once_busy", HELD_BY_YOU A, "a", ACQUIRE, ONCE, "0 ~20000 0 0 #+0 0", "f{you=1} " A_IN, 20000,
     NULL, NULL},
    {"once_hands_over", A, "a", ACQUIRE, ONCE, "0 ~3000 0 0 #+0 0", "f{a=1}", 3000, "a:#+0", NULL},
    {"once_leaves_java_alone", JAVA, "java", ACQUIRE, ONCE, "0 -2 0 0 #+0 0",
     "q[java] z{java=@+300000}", 0, NULL, NULL},
    {"once_sweeps_the_dead", JAVA_DEAD, "java", ACQUIRE, ONCE, "1 1", "f{me=1}", 30000, NULL, NULL},

    /* ---- release ---- */
    {"release", "HSET f me 1; PEXPIRE f 5000", NULL, "release", "0 me 30000 1", "1 0", "", 0, NULL,
     NULL},
    {"release_too_late", "HSET f me 1; PEXPIRE f 5000; " A, "a", "release", "@-1 me 30000 1",
     "-3 0", "f{me=1} " A_IN, 5000, NULL, NULL},
    {"release_one_level", "HSET f me 2; PEXPIRE f 5000; " A, "a", "release", "0 me 30000 2", "0 1",
     "f{me=1} " A_IN, 30000, NULL, NULL},
    {"release_one_level_never_shortens", "HSET f me 2; PEXPIRE f 50000", NULL, "release",
     "0 me 30000 2", "0 1", "f{me=1}", 50000, NULL, NULL},
    {"release_mismatch", "HSET f me 1; PEXPIRE f 5000", NULL, "release", "0 me 30000 3", "-2 1",
     "f{me=1}", 5000, NULL, NULL},
    {"release_grants", "HSET f me 1; PEXPIRE f 5000; " A B, "a b", "release", "0 me 30000 1", "1 0",
     "f{a=1} " B_IN, 3000, "a:#+0", NULL},
    {"release_grants_the_first_who_hears", "HSET f me 1; PEXPIRE f 5000; " A B, "b", "release",
     "0 me 30000 1", "1 0", "f{b=1}", 3000, "b:#+0", NULL},
    {"release_tells_java", "HSET f me 1; PEXPIRE f 5000; " JAVA B, "java b", "release",
     "0 me 30000 1", "1 0", "q[java b] z{b=@+60000 java=@+300000} r{b=3000 #-80 @+60000}", 0,
     "java:0", NULL},
    {"release_skips_the_dead", "HSET f me 1; PEXPIRE f 5000; " JAVA_DEAD A_DEAD B, "java a b",
     "release", "0 me 30000 1", "1 0", "f{b=1}", 3000, "b:#+0", NULL},
    {"release_gone_free_hands_over", A ME, "a", "release", "0 me 30000 1", "-1 0", "f{a=1}", 3000,
     "a:#+0", NULL},
    {"release_gone_anothers_leaves_the_line", HELD_BY_YOU ME, NULL, "release", "0 me 30000 1",
     "-1 1", "f{you=1}", 20000, NULL, NULL},

    /* ---- give up ---- */
    {"give_up_in_line", HELD_BY_YOU ME B, "b", "give_up", "0 me 0", "0 0", "f{you=1} " B_IN, 20000,
     NULL, NULL},
    {"give_up_too_late", HELD_BY_YOU ME, NULL, "give_up", "@-1 me 0", "-3 0",
     "f{you=1} q[me] z{me=@+7000} r{me=0 #-50 @+7000}", 20000, NULL, NULL},
    {"give_up_not_in_line", HELD_BY_YOU A, "a", "give_up", "0 me 0", "0 0", "f{you=1} " A_IN, 20000,
     NULL, NULL},
    {"give_up_what_was_granted", "HSET f me 1; PEXPIRE f 3000; " A, "a", "give_up", "0 me 0", "1 0",
     "f{a=1}", 3000, "a:#+0", NULL},
    {"give_up_one_level", "HSET f me 2; PEXPIRE f 5000; " A, "a", "give_up", "0 me 1", "1 0",
     "f{me=1} " A_IN, 5000, NULL, NULL},
    {"give_up_no_level", "HSET f me 1; PEXPIRE f 5000; " A, "a", "give_up", "0 me 1", "0 0",
     "f{me=1} " A_IN, 5000, NULL, NULL},
    {"give_up_the_first_place_of_a_free_lock", ME A, "a", "give_up", "0 me 0", "0 0", "f{a=1}",
     3000, "a:#+0", NULL},

    /* ---- break ---- */
    {"force", HELD_BY_YOU A, "a", "force", "0 you", "1 0", "f{a=1}", 3000, "a:#+0", NULL},
    {"force_tells_java", HELD_BY_YOU JAVA, "java", "force", "0 you", "1 0",
     "q[java] z{java=@+300000}", 0, "java:0", NULL},
    {"force_tells_the_holder_first", HELD_BY_YOU A, "a you", "force", "0 you ch:you broken:", "1 0",
     "f{a=1}", 3000, "a:#+0 you:broken:f", NULL},
    {"force_may_not_tell_the_holder", HELD_BY_YOU A, "a", "force",
     "0 you elsewhere broken:", "1 -1", "f{a=1}", 3000, "a:#+0", NULL},
    {"force_another", HELD_BY_YOU A, "a", "force", "0 me", "0 0", "f{you=1} " A_IN, 20000, NULL,
     NULL},
    {"force_too_late", HELD_BY_YOU, NULL, "force", "@-1 you", "-3 0", "f{you=1}", 20000, NULL,
     NULL},

    /* ---- a Java client that nobody hears for: it has two seconds to come ---- */
    {"unheard_java_is_given_two_seconds", "HSET f me 1; PEXPIRE f 5000; " JAVA, NULL, "release",
     "0 me 30000 1", "1 0", "q[java] z{java=@+2000}", 0, NULL, NULL},
    {"unheard_java_gets_no_more_than_it_had",
     "HSET f me 1; PEXPIRE f 5000; RPUSH q java; ZADD z @+700 java", NULL, "release",
     "0 me 30000 1", "1 0", "q[java] z{java=@+700}", 0, NULL, NULL},
    {"unheard_java_and_who_is_behind_it_is_told", "HSET f me 1; PEXPIRE f 5000; " JAVA A B, "a b",
     "release", "0 me 30000 1", "1 0",
     "q[java a b] z{a=@+60000 b=@+60000 java=@+2000} "
     "r{a=3000 #-90 @+60000 b=3000 #-80 @+60000}",
     0, "a:0", NULL},
    {"unheard_java_and_java_behind_it_is_told", "HSET f me 1; PEXPIRE f 5000; " JAVA J2, "j2",
     "release", "0 me 30000 1", "1 0", "q[java j2] z{j2=@+600000 java=@+2000}", 0, "j2:0", NULL},
    {"unheard_java_and_behind_java_that_hears_the_first_of_ours_is_told",
     "HSET f me 1; PEXPIRE f 5000; " JAVA J2 "RPUSH q j3; ZADD z @+900000 j3; " A B, "j2 j3 a b",
     "release", "0 me 30000 1", "1 0",
     "q[java j2 j3 a b] z{a=@+60000 b=@+60000 j2=@+600000 j3=@+900000 java=@+2000} "
     "r{a=3000 #-90 @+60000 b=3000 #-80 @+60000}",
     0, "j2:0 a:0", NULL},
    {"unheard_javas_are_remembered", "HSET f me 1; PEXPIRE f 5000; " JAVA J2 A B, "b", "release",
     "0 me 30000 1", "1 0",
     "q[java j2 a b] z{a=@+60000 b=@+60000 j2=@+600000 java=@+2000} "
     "r{a=3000 #-90 @+60000 b=3000 #-80 @+60000} u{j2=@+0}",
     0, "b:0", NULL},
    {"unheard_java_is_told_again_and_its_time_goes_on",
     "RPUSH q java; ZADD z @+800 java; HSET u java @-1200; " J2 ME, NULL, ACQUIRE, AGAIN,
     "0 -2 3 #-50 #+0 801",
     "q[java j2 me] z{j2=@+600000 java=@+800 me=@+660000} r{me=3000 #-50 @+60000} "
     "u{j2=@+0 java=@-1200}",
     0, NULL, NULL},
    {"unheard_java_that_hears_in_time", "RPUSH q java; ZADD z @+800 java; " ME, "java", ACQUIRE,
     AGAIN, "0 -2 2 #-50 #+0 801", "q[java me] z{java=@+800 me=@+360000} r{me=3000 #-50 @+60000}",
     0, "java:0", NULL},
    {"unheard_javas_are_passed_over_when_their_time_is_up",
     JAVA_DEAD J2 "HSET u j2 @-2000; RPUSH q j3; ZADD z @+900000 j3; HSET u j3 @-2001; " ME, NULL,
     ACQUIRE, AGAIN, "1 1", "f{me=1}", 30000, NULL, NULL},
    {"unheard_java_whose_time_began_later", JAVA_DEAD J2 "HSET u j2 @-1999; " ME, NULL, ACQUIRE,
     AGAIN, "0 -2 2 #-50 #+0 2",
     "q[j2 me] z{j2=@+1 me=@+360000} r{me=3000 #-50 @+60000} u{j2=@-1999}", 0, NULL, NULL},
    {"unheard_once_is_no_evidence_if_it_hears_now", J2 "HSET u j2 @-3000; " ME, "j2", ACQUIRE,
     AGAIN, "0 -2 2 #-50 #+0 60000",
     "q[j2 me] z{j2=@+600000 me=@+360000} r{me=3000 #-50 @+60000} u{j2=@-3000}", 0, "j2:0", NULL},
    {"unheard_and_what_is_remembered_is_of_a_wrong_type",
     "HSET f me 1; PEXPIRE f 5000; SET u text; " JAVA J2 A, "a", "release", "0 me 30000 1", "1 0",
     "q[java j2 a] z{a=@+60000 j2=@+600000 java=@+2000} r{a=3000 #-90 @+60000} u", 0, "a:0", NULL},
    {"unheard_by_once_changes_nothing", JAVA A, "a", ACQUIRE, ONCE, "0 -2 0 0 #+0 0",
     "q[java a] z{a=@+60000 java=@+300000} r{a=3000 #-90 @+60000}", 0, NULL, NULL},
    {"unheard_ours_that_does_not_listen_yet_keeps_its_time",
     "HSET f me 1; PEXPIRE f 5000; " A_DEAF B, "b", "release", "0 me 30000 1", "1 0",
     "q[a b] z{a=@+60000 b=@+60000} r{a=0 #-90 @+60000 b=3000 #-80 @+60000}", 0, NULL, NULL},

    /* ---- hand over: what a release did not finish ---- */
    {"hand_over_held", HELD_BY_YOU A, "a", "hand_over", "0 me", "1 0", "f{you=1} " A_IN, 20000,
     NULL, NULL},
    {"hand_over_nobody", NULL, NULL, "hand_over", "0 me", "1 0", "", 0, NULL, NULL},
    {"hand_over_free", A_DEAD B, "b", "hand_over", "0 me", "1 0", "f{b=1}", 3000, "b:#+0", NULL},
    {"hand_over_too_late", A, "a", "hand_over", "@-1 me", "-3 0", A_IN, 0, NULL, NULL},

    /* ---- what is no fair lock ---- */
    {"U67_acquire_string", "SET f text", NULL, ACQUIRE, FIRST, "!WRONGTYPE", "f", 0, NULL, NULL},
    {"U68_acquire_read_write", "HSET f mode read you 1", NULL, ACQUIRE, FIRST, "!WRONGTYPE",
     "f{mode=read you=1}", -1, NULL, NULL},
    {"U67_acquire_queue_of_a_wrong_type", "SET q text", NULL, ACQUIRE, FIRST, "!WRONGTYPE", "q", 0,
     NULL, NULL},
    {"U67_acquire_deadlines_of_a_wrong_type", "SET z text", NULL, ACQUIRE, FIRST, "!WRONGTYPE", "z",
     0, NULL, NULL},
    {"U67_acquire_records_of_a_wrong_type", "SET r text", NULL, ACQUIRE, FIRST, "!WRONGTYPE", "r",
     0, NULL, NULL},
    {"U67_release_queue_of_a_wrong_type", "HSET f me 1; PEXPIRE f 5000; SET q text", NULL,
     "release", "0 me 30000 1", "!WRONGTYPE", "f{me=1} q", 5000, NULL, NULL},
    {"U67_give_up_deadlines_of_a_wrong_type", "HSET f me 1; PEXPIRE f 5000; SET z text", NULL,
     "give_up", "0 me 0", "!WRONGTYPE", "f{me=1} z", 5000, NULL, NULL},
    {"U67_count_that_is_no_number", "HSET f me x; PEXPIRE f 5000", NULL, ACQUIRE, FIRST,
     "!WRONGTYPE", "f{me=x}", 5000, NULL, NULL},
    {"U01_lease_zero", NULL, NULL, ACQUIRE, "0 me 0 0 1 3000 0 60000 300000", "!ERR the lease", "",
     0, NULL, NULL},
    {"U02_lease_too_long", NULL, NULL, ACQUIRE, "0 me 9223372036854775807 0 1 3000 0 60000 300000",
     "!ERR invalid expire", "", 0, NULL, NULL},
};
const size_t fair_row_count = sizeof fair_rows / sizeof *fair_rows;
