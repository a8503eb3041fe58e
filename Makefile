# lattice.c: `make` builds the programs, `make help` lists the other targets.
#
#   CC=gcc|clang  BUILD=build  OPENMP=1|0  ONEDNN=0|1  MPI=0|1  SANITIZE=address,undefined  OPT=-O3  V=1 (shows the commands)
#   ISAS="generic avx2 avx512": the instruction sets that are compiled, to be chosen among at run time

ifeq ($(origin CC),default)
  CC := gcc
endif
ONEDNN   ?= 0
MPI      ?= 0
BUILD    ?= $(if $(filter 1,$(ONEDNN)),build-onednn,build)
OPENMP   ?= 1
OPT      ?= -O3
SANITIZE ?=
Q        := $(if $(V),,@)
JOBS     := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

PROGRAM_DIR ?=
PROGRAMS := $(addprefix $(PROGRAM_DIR),prepare tokenize train generate eval_ppl bench)
# What scripts call.
TOOLS    := $(addprefix $(BUILD)/,stories mqar mqar_report text_run text_report)
MAINS    := data/prepare.c tokenizer/tokenize.c training/train.c infer/generate.c infer/eval_ppl.c data/stories.c benchmarks/bench.c \
            experiments/mqar.c experiments/mqar_report.c experiments/text_run.c experiments/text_report.c

# Kernels and mixers are compiled once for each instruction set and chosen at run time (model/kernels/kernels.c).
ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
ifeq ($(ARCH),x86_64)
  ISAS ?= generic avx2 avx512
else
  ISAS ?= generic
endif
# Compilers know AMX since gcc 11 and clang 12.
AMX := $(if $(filter avx512,$(ISAS)),$(shell $(CC) -mamx-tile -mamx-bf16 -x c -c /dev/null -o /dev/null 2>/dev/null && echo amx))
# Only the matrix products, and what rounds to bf16, differ with bf16, int8 and matrix instructions; table.c joins them with the rest of avx512.
BF16_ISAS := $(if $(filter avx512,$(ISAS)),avx512bf16 $(AMX))
BF16_OBJ := $(foreach isa,$(BF16_ISAS),$(foreach part,gemm few_rows update norm activation $(if $(filter 1,$(ONEDNN)),onednn),$(BUILD)/$(isa)/model/kernels/$(part).o))
ISA_FLAGS_generic :=
ISA_FLAGS_avx2    := -mavx2 -mfma
ISA_FLAGS_avx512bf16 = $(ISA_FLAGS_avx512) -mavx512bf16 -mavx512vnni
ISA_FLAGS_amx = $(ISA_FLAGS_avx512bf16) -mamx-tile -mamx-bf16
ISA_FLAGS_avx512  := -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512

WARN     := -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wno-unknown-pragmas
# At low levels of optimisation gcc does not see that loops fill arrays, and says that they may be unset.
WARN     += $(if $(filter -O3,$(OPT)),,-Wno-unknown-warning-option -Wno-maybe-uninitialized)
# -ffp-contract=fast allows fused multiply-add and nothing else; NaN and infinity keep their meaning.
CFLAGS   += -std=c11 -D_GNU_SOURCE -g $(OPT) -ffp-contract=fast -fno-math-errno -fno-trapping-math $(WARN) -I. -MMD -MP
LDLIBS   += -lcjson -lpcre2-8 -lutf8proc -lxxhash -larchive -lz -lzstd -lsnappy -llz4 -lbrotlidec -pthread -ldl -lm
ifeq ($(ONEDNN),1)
  CFLAGS += -DWITH_ONEDNN
  LDLIBS += -ldnnl
endif
ifneq ($(SANITIZE),)
  CFLAGS  += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
  LDFLAGS += -fsanitize=$(SANITIZE)
endif
# Only ./train knows of ranks: it is linked with ranks_mpi.o, which then stands in for the library's ranks.o.
ifeq ($(MPI),1)
  MPICC     ?= mpicc
  RANKS_OBJ := $(BUILD)/training/ranks_mpi.o
  MPI_LIBS  := $(shell $(MPICC) --showme:link 2>/dev/null)
  MPI_FLAGS := $(shell $(MPICC) --showme:compile 2>/dev/null)
  $(if $(MPI_LIBS),,$(warning $(MPICC) of Open MPI is missing: `make MPI=1 setup` installs it))
  MPI_TESTS := $(BUILD)/tests/mpi/test_ranks
endif
# Apple's clang has no -fopenmp: use it only where a program with it links; the programs say at start whether they have it.
ifeq ($(OPENMP),1)
  HAVE_OPENMP := $(shell printf 'int main(void){return 0;}' | $(CC) -fopenmp -x c - -o /dev/null 2>/dev/null && echo 1)
  ifeq ($(HAVE_OPENMP),1)
    CFLAGS  += -fopenmp
    LDFLAGS += -fopenmp
  else
    $(warning $(CC) cannot build with -fopenmp: the programs will use one thread (make setup installs what is missing))
  endif
endif

ISA_SRC  := $(filter-out model/kernels/kernels.c $(if $(filter 1,$(ONEDNN)),,model/kernels/onednn.c), $(wildcard model/kernels/*.c model/mixers/*.c))
LIB_SRC  := $(filter-out $(MAINS) $(ISA_SRC) model/kernels/onednn.c training/ranks_mpi.c, $(wildcard base/*.c benchmarks/*.c checkpoint/*.c model/*.c model/kernels/*.c training/*.c infer/*.c tokenizer/*.c data/*.c experiments/*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o) $(foreach isa,$(ISAS),$(ISA_SRC:%.c=$(BUILD)/$(isa)/%.o)) $(BF16_OBJ)
LIB      := $(BUILD)/liblattice.a
REF_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/reference/*.c))
TESTS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))

.PHONY: all test clean help setup quickstart asan tsan memcheck fuzz torture cppcheck tidy
.SECONDARY:
all: $(PROGRAMS) $(TOOLS)

define program_rule
$(1): $(BUILD)/$(filter %/$(notdir $(1)).o,$(MAINS:.c=.o)) $(2) $(LIB) $(PROGRAM_DIR).linked
	@echo '  link $$@'
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$(filter-out %.linked,$$^) $$(LDLIBS) $(3)
endef
$(foreach p,$(PROGRAMS) $(TOOLS),$(eval $(call program_rule,$(p),$(if $(filter %train,$(p)),$(RANKS_OBJ)),$(if $(filter %train,$(p)),$(MPI_LIBS)))))

# Programs of another build are linked anew: this file changes when BUILD or MPI does.
.PHONY: force
$(PROGRAM_DIR).linked: force
	@mkdir -p $(dir $@)
	@[ "$$(cat $@ 2>/dev/null)" = "$(BUILD) $(MPI)" ] || echo "$(BUILD) $(MPI)" >$@

$(BUILD)/training/ranks_mpi.o: CFLAGS += $(MPI_FLAGS)
$(BUILD)/tests/mpi/test_ranks: $(BUILD)/tests/mpi/test_ranks.o $(RANKS_OBJ) $(LIB)
	@echo '  link $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS) $(MPI_LIBS)

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

define isa_rule
$(BUILD)/$(1)/%.o: %.c
	@mkdir -p $$(dir $$@)
	@echo '  $$(CC) $$< ($(1))'
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_FLAGS_$(1)) -DISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ISAS) $(BF16_ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/model/kernels/kernels.o: CFLAGS += $(if $(filter avx2,$(ISAS)),-DWITH_AVX2) $(if $(filter avx512,$(ISAS)),-DWITH_AVX512) $(if $(AMX),-DWITH_AMX)
$(BUILD)/avx512/model/kernels/table.o: CFLAGS += $(if $(AMX),-DWITH_AMX)

$(BUILD)/%.o: %.c
	@mkdir -p $(dir $@)
	@echo '  $(CC) $<'
	$(Q)$(CC) $(CFLAGS) -c -o $@ $<

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(REF_OBJ) $(LIB)
	@echo '  link $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

# Tests with faults: the calls that tests/fault/fault.c stands in front of. Linkers without --wrap (Apple's) build a test that says so.
FAULT_CALLS := malloc calloc realloc aligned_alloc strdup strndup open_memstream asprintf mmap open fopen read pread write fsync close rename renameat2 \
	mkdir unlink ftruncate flock
FAULT_TESTS := $(filter $(BUILD)/tests/test_faults%,$(TESTS))
HAVE_WRAP   := $(shell printf 'int main(void){return 0;}' | $(CC) -Wl,--wrap=malloc -x c - -o /dev/null 2>/dev/null && echo 1)
ifeq ($(HAVE_WRAP),1)
FAULT_LIB   := $(BUILD)/tests/libfault.so
$(FAULT_TESTS): $(BUILD)/tests/fault/fault.o
$(FAULT_TESTS): LDFLAGS += $(FAULT_CALLS:%=-Wl,--wrap=%)
else
$(FAULT_TESTS:%=%.o): CFLAGS += -DWITHOUT_FAULTS
endif

$(BUILD)/tests/libfault.so: tests/fault/fault.c tests/fault/fault.h
	@mkdir -p $(dir $@)
	@echo '  $(CC) $< (shared)'
	$(Q)$(CC) $(filter-out -fsanitize=%,$(CFLAGS)) -DFAULT_PRELOAD -fPIC -shared -o $@ $< -ldl

$(BUILD)/tests/golden: $(BUILD)/tests/golden.o $(REF_OBJ) $(LIB)
	@echo '  link $@'
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# Every finding of these groups is an error; the suppressions hold for tests' deliberate oddities and for cppcheck's own limits.
cppcheck:
	cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem -I. -DISA=generic \
		-j 2 base checkpoint model training infer tokenizer data experiments

# The checks and why some are left out stand in .clang-tidy; base/error.c defines what known.h puts a macro before. The analyzer follows
# paths through a few calls only: `make tidy TIDY=deep` takes several times as long.
TIDY     ?= shallow
TIDY_SRC := $(filter-out base/error.c model/kernels/onednn.c,$(MAINS) $(LIB_SRC) $(ISA_SRC)) $(if $(RANKS_OBJ),training/ranks_mpi.c)
tidy:
	@echo $(TIDY_SRC) | tr ' ' '\n' | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE -I. -DISA=generic $(MPI_FLAGS) -include tests/analysis/known.h -Xclang -analyzer-config -Xclang mode=$(TIDY)' tidy

help:
	@echo 'make              builds ./prepare ./tokenize ./train ./generate ./eval_ppl'
	@echo 'make MPI=1        the same, with a ./train for mpirun'
	@echo 'make test         installs what is missing, builds and runs all tests'
	@echo 'make quickstart   the whole way once: corpus, training (two minutes), perplexity, sample'
	@echo 'make bench        builds ./bench, which measures this build beside the ceilings of this machine'
	@echo 'make setup        installs what building needs (as root or with sudo)'
	@echo 'make asan         the tests under address and undefined-behaviour sanitizers'
	@echo 'make tsan         the tests of what works with threads under the thread sanitizer (needs clang)'
	@echo 'make memcheck     short runs of the programs under valgrind'
	@echo 'make tidy         clang-tidy; make cppcheck: cppcheck'
	@echo 'make fuzz         every fuzz target for FUZZ_SECONDS seconds (needs clang; default 20)'
	@echo 'make torture      kills and full disks: 200 and 50 of them, or KILLS= and FILLS='
	@echo 'make clean        removes what was built'
	@echo 'variables         CC=gcc|clang  BUILD=folder  OPENMP=0|1  ONEDNN=0|1  MPI=0|1 (./train on several machines)  OPT=-O3'

setup:
	@scripts/setup $(if $(filter 1,$(MPI)),--mpi)

# Setup may install a compiler or a library, so the build starts in a make of its own.
test: setup
	@$(MAKE) --no-print-directory -j$(JOBS) run-tests

.PHONY: run-tests
run-tests: all $(TESTS) $(MPI_TESTS) $(BUILD)/tests/golden $(FAULT_LIB)
	@BUILD=$(BUILD) PROGRAM_DIR=$(PROGRAM_DIR) SCRIPTS="$(if $(MPI_TESTS),tests/mpi/test_mpi.sh)" tests/run $(TESTS)

# Only what a build with MPI=1 has beside the other tests.
.PHONY: test-mpi
test-mpi: $(PROGRAM_DIR)train $(PROGRAM_DIR)prepare $(BUILD)/stories $(MPI_TESTS)
	@BUILD=$(BUILD) PROGRAM_DIR=$(PROGRAM_DIR) sh tests/mpi/test_mpi.sh

quickstart: setup
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@BUILD=$(BUILD) scripts/quickstart

# The sources of the sets are one: the portable and the widest show what there is to show, in half the time.
ASAN_ISAS := $(filter generic avx512,$(ISAS))
asan: setup
	@TEST_SHORT=1 $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)-asan SANITIZE=address,undefined OPT=-O1 ISAS="$(ASAN_ISAS)" PROGRAM_DIR=$(BUILD)-asan/ run-tests

# Tests of what works with threads: files read ahead, documents in batches, and OpenMP's.
TSAN_TESTS := muon read_ahead corpus corpus_packed prepare prepare_folder bpe_train trainer snapshot model
tsan:
	@TEST_SHORT=1 $(MAKE) --no-print-directory -j$(JOBS) CC=clang BUILD=$(BUILD)-tsan SANITIZE=thread OPENMP=1 OPT=-O1 ISAS=generic run-tsan

.PHONY: run-tsan
run-tsan: $(TSAN_TESTS:%=$(BUILD)/tests/test_%)
	@BUILD=$(BUILD) sh tests/analysis/tsan.sh $^

memcheck: all
	@BUILD=$(BUILD) PROGRAM_DIR=$(PROGRAM_DIR) sh tests/analysis/memcheck.sh

KILLS ?= 200
FILLS ?= 50
torture: all
	@BUILD=$(BUILD) PROGRAM_DIR=$(PROGRAM_DIR) tests/torture $(KILLS) $(FILLS)

FUZZ_SECONDS ?= 20
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	@$(MAKE) --no-print-directory -j$(JOBS) CC=clang BUILD=$(BUILD)-fuzz SANITIZE=address,undefined,fuzzer-no-link OPENMP=0 OPT=-O1 ISAS=generic run-fuzz

.PHONY: run-fuzz
run-fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%)
	@tests/fuzz/run $(FUZZ_SECONDS) $^

$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(LIB)
	@mkdir -p $(dir $@)
	@echo '  link $@'
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

clean:
	rm -rf $(BUILD) $(PROGRAMS) $(PROGRAM_DIR).linked

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
