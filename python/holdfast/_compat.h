#ifndef HF_CHECK_MS
static inline int hf_lock_forget_as(hf_lock *l, hf_owner o) { (void)l; (void)o; return 0; }
static inline bool hf_op_abandon(hf_op *op) { hf_op_cancel(op); hf_op_free(op); return false; }
#endif
#ifndef HF_JSON
static inline int hf_fleet_json(const hf_fleet *f, char **t) { (void)f;(void)t; return HF_ENOTSUP; }
static inline int hf_lock_info_json(const hf_lock_info *f, char **t) { (void)f;(void)t; return HF_ENOTSUP; }
#endif
#define hfpy_extend_start(l, o, ms, how, cb, u, op) hf_lock_extend_start(l, o, (void)(how), ms, cb, u, op)
#undef hfpy_extend_start
#define hfpy_extend_start(l, o, ms, how, cb, u, op) ((void)(how), hf_lock_extend_start(l, o, ms, cb, u, op))
