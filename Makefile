# The commands a person types. Everything is done by CMake underneath (see CMakePresets.json); each
# target installs what it is missing, builds its preset in build/<preset>, and runs one script.
#
#   make test V=1       show every line of the build and of the tests
#   make test CC=clang  another compiler (for a build directory that does not exist yet)
#   make test JOBS=4    how many jobs run at once (default: one per processor,
#                       and eight tests)

PREFIX ?= /usr/local
DESTDIR ?=
V ?=
JOBS ?=
export V JOBS
ifneq ($(origin CC),default)
export CC
endif

.PHONY: build demo test bench soak fuzz deb dist dist-test site matrix models lab lint format install uninstall clean help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

build:
	@scripts/setup build
	@scripts/build release

demo:
	@scripts/setup demo
	@scripts/build release
	@HOLDFAST="$(CURDIR)/build/release/bin/holdfast" scripts/demo

test:
	@scripts/setup test
	@scripts/test

bench:
	@scripts/setup bench
	@scripts/build release -DHF_BENCH=ON
	@HF_BENCH_BIN="$(CURDIR)/build/release/bin" bench/run

soak:
	@scripts/setup test
	@scripts/soak

fuzz:
	@scripts/setup fuzz
	@scripts/fuzz

deb:
	@scripts/setup deb
	@scripts/deb

dist:
	@scripts/setup dist
	@scripts/dist

dist-test:
	@scripts/setup dist
	@scripts/dist-test

site:
	@scripts/setup site
	@scripts/site

matrix:
	@scripts/setup test
	@scripts/matrix

models:
	@scripts/setup test
	@models/run large

lab:
	@scripts/setup test
	@scripts/build test
	@LAB_BIN="$(CURDIR)/build/test/bin/lab" scripts/lab

lint:
	@scripts/setup lint
	@scripts/lint

format:
	@scripts/setup format
	@scripts/lint --fix-format

install:
	@scripts/setup build
	@scripts/build release -DCMAKE_INSTALL_PREFIX="$(PREFIX)"
	@DESTDIR="$(DESTDIR)" cmake --install build/release
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

uninstall:
	@cmake -DMANIFEST="$(CURDIR)/build/release/install_manifest.txt" -DDESTDIR="$(DESTDIR)" \
	    -P cmake/uninstall.cmake
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf build

help:
	@echo "make demo       show what holdfast is for, in under a minute"
	@echo "make test       the whole suite: plain, and a chosen list under ASan+UBSan and TSan"
	@echo "make build      the library and the tool, in build/release (also just: make)"
	@echo "make install    PREFIX=/usr/local DESTDIR= ; make uninstall undoes it"
	@echo "make bench      the benchmarks"
	@echo "make soak       every test at full size, in parts: PART=... (hours)"
	@echo "make fuzz       the fuzzers, with clang: FUZZ_SECONDS=60 each"
	@echo "make deb        Debian packages for this machine's suite, in build/deb"
	@echo "make dist       the release folder, in build/dist; make dist-test installs from it"
	@echo "make site       all documents as pages, in build/site: English, Chinese, the API, a search"
	@echo "make matrix     the interop suite beside several versions of Redisson (half an hour)"
	@echo "make models     the models of models/, exhaustive within their large bounds (half an hour)"
	@echo "make lab        histories and a protected register under every fault, for LAB_S seconds (600)"
	@echo "make lint       clang build, clang-tidy, cppcheck, luacheck, shellcheck, clang-format"
	@echo "make format     clang-format on everything"
	@echo "make clean      remove build/"
