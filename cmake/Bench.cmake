# The benchmark: bench/*.c is one program in <build>/bin, started by bench/run. It sees src/ for one
# thing only, the embedded scripts: the bare exchange that it compares with must run the same ones.
file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
set(bench_shared ${PROJECT_SOURCE_DIR}/bench/measure.c ${PROJECT_SOURCE_DIR}/bench/raw.c)
list(REMOVE_ITEM sources ${bench_shared})

# Code shared with the quorum's benchmark. Compiled once: clang-tidy 14 stumbles over a va_start that it sees for
# the second time.
add_library(hf_bench_shared OBJECT ${bench_shared})
target_include_directories(hf_bench_shared PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(hf_bench_shared PRIVATE holdfast_static hiredis)
hf_compile_target(hf_bench_shared)

add_executable(hf_bench ${sources} $<TARGET_OBJECTS:hf_bench_shared>)
target_include_directories(hf_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(hf_bench PRIVATE holdfast_static hiredis ssl crypto Threads::Threads m)
hf_compile_target(hf_bench)

# The same rows as the peers are measured in; public header only.
add_executable(hf_bench_peers bench/peers/holdfast.c)
target_link_libraries(hf_bench_peers PRIVATE holdfast_static Threads::Threads)
hf_compile_target(hf_bench_peers)

# One process of the quorum's benchmark, started by bench/quorum/run.
file(GLOB quorum_sources CONFIGURE_DEPENDS bench/quorum/*.c)
add_executable(hf_bench_quorum ${quorum_sources} $<TARGET_OBJECTS:hf_bench_shared>)
target_include_directories(hf_bench_quorum PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(hf_bench_quorum PRIVATE holdfast_static hiredis Threads::Threads)
hf_compile_target(hf_bench_quorum)

# One process of the failover's benchmark, started by bench/failover/run; public header only.
add_executable(hf_bench_failover bench/failover/worker.c)
target_link_libraries(hf_bench_failover PRIVATE holdfast_static Threads::Threads)
hf_compile_target(hf_bench_failover)

# One run of the cluster's, started by bench/cluster/run; public header only.
add_executable(hf_bench_cluster bench/cluster/worker.c)
target_link_libraries(hf_bench_cluster PRIVATE holdfast_static Threads::Threads)
hf_compile_target(hf_bench_cluster)

# ZooKeeper's, started by bench/zk/run.
file(GLOB zk_sources CONFIGURE_DEPENDS bench/zk/*.c)
add_executable(hf_bench_zk ${zk_sources})
target_include_directories(hf_bench_zk PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(hf_bench_zk PRIVATE holdfast_static hiredis ssl crypto Threads::Threads)
hf_compile_target(hf_bench_zk)

# Pairs to count the cost of, started by bench/counts/run; public header only, and the library that is installed.
add_executable(hf_bench_counts bench/counts/pair.c)
target_link_libraries(hf_bench_counts PRIVATE holdfast)
hf_compile_target(hf_bench_counts)

# A process of a large fleet, or its survey, started by bench/fleet/run; public header only.
add_executable(hf_bench_fleet bench/fleet/worker.c)
target_link_libraries(hf_bench_fleet PRIVATE holdfast_static Threads::Threads)
hf_compile_target(hf_bench_fleet)
