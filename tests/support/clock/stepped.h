/* What the file `step` of a server's directory holds; see stepped.c. */
#ifndef HF_TEST_STEPPED_H
#define HF_TEST_STEPPED_H

#include <stdatomic.h>
#include <stdint.h>

struct stepped_clock {
    _Atomic int64_t step_us;         /* how far it is ahead */
    _Atomic int64_t slewed_since_us; /* by the real time of day; and from then on it runs */
    _Atomic int64_t slew_ppm;        /* so much faster */
};

#endif
