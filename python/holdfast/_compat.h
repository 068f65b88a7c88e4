#ifndef HF_STATS_FIELDS
static inline int hf_fleet_json(const hf_fleet *f, char **t) {
    (void)f;
    (void)t;
    return HF_ENOTSUP;
}
static inline int hf_lock_info_json(const hf_lock_info *f, const char *n, size_t l, char **t) {
    (void)f;
    (void)t;
    (void)n;
    (void)l;
    return HF_ENOTSUP;
}
#endif
