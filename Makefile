# Train GPT-2 from raw text, in C and CUDA. `make help` lists the targets and the switches.

# ---- settings ----------------------------------------------------------------------------------------------
MPI      ?= 1
CUDA     ?= 1
NCCL     ?= probe
SANITIZE ?=
V        ?= 0
WERROR   ?= 0
# make has a CC and a CXX of its own, which ?= would keep. CC=clang asks for clang++ too: one OpenMP for both.
unless_default = $(if $(filter default,$(origin $(1))),$(2),$($(1)))
CC       := $(call unless_default,CC,gcc)
CXX      := $(call unless_default,CXX,$(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),g++))
OPTIMIZE ?= -O3
OBJCOPY  ?= objcopy
NVCC     ?= nvcc
GPUS     ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a \
            -gencode arch=compute_90,code=compute_90
toolkit   = $(shell scripts/cuda_toolkit.sh $(1) $(NVCC))
# NCCL: 1, 0, or whether nvcc finds its header, which is asked for goals with "cu" in their names.
HAS_NCCL := $(strip $(if $(filter-out probe,$(NCCL)),$(NCCL),$(if $(findstring cu,$(MAKECMDGOALS)), \
            $(call toolkit,nccl))))
comma    := ,
other_cc := $(filter-out gcc,$(notdir $(lastword $(CC))))
VARIANT  := mpi$(MPI)$(if $(filter 0,$(NCCL)),-nccl0)$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
VARIANT  := $(VARIANT)$(if $(other_cc),-$(other_cc))
B        := build/$(VARIANT)
MACHINE  ?= $(shell uname -m)
Q        := $(if $(filter 1,$(V)),,@)

# -fno-math-errno and -fno-trapping-math let loops vectorise without changing any result; never -ffast-math.
# -ffp-contract=off: a fused multiply-add is written as one, so that every CPU and compiler rounds alike.
CPPFLAGS += -I. -I$(B)
# Neither compiler knows all that the other is asked to keep quiet about: -Wno-pass-failed is for clang, which
# else reports loops that it does not vectorise.
WARNINGS := -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror)
CFLAGS   += -std=c11 $(OPTIMIZE) -g $(WARNINGS) -Wno-unknown-warning-option -Wno-format-truncation \
            -Wno-pass-failed -MMD -MP -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off
CXXFLAGS += -std=c++20 -O2 -g $(WARNINGS) -MMD -MP -fopenmp -ffp-contract=off
LDLIBS   += -lzstd -ljansson -lm -lpthread
CFLAGS   += $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# Nothing of Open MPI 5 starts without a HOME.
mpi       = $(if $(filter 1,$(MPI)),$(shell HOME=$${HOME:-/} mpicc --showme:$(1) 2>/dev/null))
MPI_CFLAGS := $(call mpi,compile)
LDLIBS   += $(call mpi,link)

# ---- what is built -----------------------------------------------------------------------------------------
PROGRAMS := train_gpt2 test_gpt2 data_prep/tokenize
# comm: MPI=0 leaves out the one file that speaks MPI.
COMM_SOURCES := $(filter-out %/comm_mpi$(if $(filter 1,$(MPI)),_missing).c,$(wildcard llmc/comm/*.c))
LEVELS_SOURCE := $(wildcard llmc/compute/levels/*_$(if $(filter x86_64,$(MACHINE)),x86_64,portable).c)
LIB_SOURCES  := $(foreach floor,base model text data snapshot run,$(wildcard llmc/$(floor)/*.c)) \
                $(COMM_SOURCES) $(wildcard llmc/compute/*.c) $(LEVELS_SOURCE)
LIB_OBJECTS  := $(LIB_SOURCES:%.c=$(B)/%.o) $(B)/llmc/text/vocabulary.o

# The CPU backend is compiled once for each level; each level becomes one object that shows only its table.
ifeq ($(MACHINE),x86_64)
LEVELS       := x86-64-v2 x86-64-v3 x86-64-v4
BASE_FLAGS   := -march=x86-64-v2
else
LEVELS       := portable
BASE_FLAGS   :=
endif
vector_bits   = $(if $(filter %v4,$(1)),512,256)
march         = $(if $(filter portable,$(1)),,-march=$(1) -mprefer-vector-width=$(call vector_bits,$(1)))
lanes         = $(if $(filter %v4,$(1)),avx512,$(if $(filter %v3,$(1)),avx2,$(if \
                $(filter aarch64,$(MACHINE)),neon,soft)))
symbol        = cpu_level_$(subst -,_,$(1))
CPU_SOURCES  := $(wildcard llmc/compute/cpu/*.c)
# Kernels that only some CPUs of the level x86-64-v4 can run.
BF16_SOURCES := $(wildcard llmc/compute/cpu/x86/*.c)
BF16_FLAGS   := -mavx512bf16 -mamx-tile -mamx-bf16
level_sources = $(CPU_SOURCES) $(if $(filter %v4,$(1)),$(BF16_SOURCES))
cpu_objects   = $(patsubst llmc/compute/cpu/%.c,$(B)/cpu/$(1)/%.o,$(call level_sources,$(1)))
LEVEL_OBJECTS := $(LEVELS:%=$(B)/cpu/%.o)
# The CUDA program, with NCCL or without. Its host variants bring an NCCL of their own.
CUDA_SOURCES := $(wildcard llmc/*/cuda/*.cu llmc/comm/nccl/*.cu)
left_out      = $(if $(filter cuda,$(1)),$(if $(filter 1,$(HAS_NCCL)),%_missing.cu,%_reducer.cu \
                %_library.cu),%_library.cu $(if $(filter 0,$(NCCL)),%_reducer.cu,%_missing.cu))
cuda_objects  = $(patsubst %.cu,$(B)/$(1)/%.o,$(filter-out $(call left_out,$(1)),$(CUDA_SOURCES)))
CUDA_PROGRAMS := train_gpt2cu test_gpt2cu
HOST_PROGRAMS := $(CUDA_PROGRAMS:%=%_host)
HOST_SWITCH  := dev/host_cuda/switch/$(if $(filter x86_64,$(MACHINE)),x86_64,portable).cpp
HOST_LIBS    := $(patsubst %.cpp,$(B)/%.o,$(wildcard dev/host_cuda/*.cpp) $(HOST_SWITCH)) $(B)/libllmc.a
CUDA_TESTS   := $(if $(filter 1,$(CUDA)),$(wildcard dev/ops/test_*.cu))
HOST_TESTS   := $(CUDA_TESTS:dev/ops/%.cu=$(B)/ops/checked/%)
HOST_TOOLS   := $(if $(filter 1,$(CUDA)),$(foreach way,host checked,$(CUDA_PROGRAMS:%=$(B)/%_$(way))) \
                $(B)/bench/host/tune_matmul)
MODULE_TESTS := $(patsubst dev/test/%.c,$(B)/test/%,$(wildcard dev/test/test_*.c)) \
                $(addprefix $(B)/test/test_bf16_,emulated $(filter x86_64,$(MACHINE)))
OP_SOURCES   := $(wildcard dev/ops/test_*.c)
OP_TESTS     := $(foreach level,$(LEVELS),$(OP_SOURCES:dev/ops/%.c=$(B)/ops/$(level)/%))
TEST_TOOLS   := $(B)/test/damage $(B)/test_gpt2_emulated
FAULT_TOOLS  := $(addprefix $(B)/fault/,inject.so inspect start)
# Those that take minutes, and mostly wait, begin first: others run beside them.
LONG_TESTS   := $(addprefix dev/test/test_,ranks_cuda.sh ranks.sh faults.sh cuda.sh)
SHELL_TESTS  := $(filter-out $(if $(filter 1,$(CUDA)),,%cuda.sh),$(LONG_TESTS) \
                $(filter-out $(LONG_TESTS),$(wildcard dev/test/test_*.sh)))

all: $(PROGRAMS) ## the CPU programs: train_gpt2, test_gpt2, data_prep/tokenize

# ---- rules -------------------------------------------------------------------------------------------------
say = @printf '  %-8s %s\n' $(1) $(2)
into = $(Q)mkdir -p $(@D) &&
parts = $(filter %.o,$^) $(filter %.a,$^)
GPU_LIBS = $(LDLIBS)

train_gpt2cu: ## the CUDA program (CUDA Toolkit 12.4 or newer)
test_gpt2cu: ## what compares the CUDA model with reference folders
train_gpt2cu_host: ## the CUDA program with its kernels run by the CPU, for tests
# A program at the top is a copy of the variant's own, so that variants do not relink each other.
$(PROGRAMS) $(CUDA_PROGRAMS) $(HOST_PROGRAMS): %: $(B)/% FORCE
	$(Q)cmp -s $< $@ || cp -f $< $@

JUDGE := $(patsubst %.c,$(B)/%.o,$(wildcard dev/reference/*.c))
$(addprefix $(B)/test_gpt2,cu cu_host cu_checked) $(B)/test_gpt2: $(JUDGE)
$(B)/train_gpt2 $(B)/test_gpt2: $(B)/%: $(B)/%.o $(LEVEL_OBJECTS) $(B)/libllmc.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(parts) $(LDLIBS)

CUDA_LIBS = $(call toolkit,link)
$(CUDA_PROGRAMS:%=$(B)/%): $(B)/%cu: $(B)/cuda/%.o $(call cuda_objects,cuda) $(B)/cuda/nccl $(B)/libllmc.a
	$(call say,LINK,$@)
	$(Q)$(CXX) -fopenmp $(LDFLAGS) -o $@ $(parts) $(CUDA_LIBS) $(GPU_LIBS)
$(B)/cuda/%.o: %.cu Makefile | has-nvcc
	$(call say,NVCC,$<)
	$(into) $(NVCC) -std=c++20 $(OPTIMIZE) $(GPUS) -I. -Illmc/compute/cuda/device $(call toolkit,compile) \
	    $(if $(filter 1,$(WERROR)),-Werror all-warnings) -Xcompiler -Wall,-Wextra,-ffp-contract=off \
	    -DBUILD_GPUS='"$(patsubst code=%,%,$(filter code=%,$(subst $(comma), ,$(GPUS))))"' -MMD -MP -c -o $@ $<
has-nvcc:
	@command -v $(NVCC) >/dev/null || { echo "make: no $(NVCC) found: CUDA Toolkit 12.4 has it" >&2; exit 1; }
# Newer than the program where nccl.h has come or gone since.
NO_NCCL := nvcc finds no nccl.h: built for one GPU (libnccl-dev has it; or put its folder into CPATH)
$(B)/cuda/nccl: FORCE | has-nvcc
	$(into) echo $(HAS_NCCL) | cmp -s - $@ || echo $(HAS_NCCL) >$@
	$(if $(filter probe-0,$(NCCL)-$(HAS_NCCL)),$(call say,NCCL,"$(NO_NCCL)"))

$(B)/data_prep/tokenize: $(patsubst %.c,$(B)/%.o,$(wildcard data_prep/*.c)) $(B)/libllmc.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -larchive -lz -ljansson -lm -lpthread
$(B)/libllmc.a: $(LIB_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/%.o: %.c Makefile
	$(call say,CC,$<)
	$(into) $(CC) $(CPPFLAGS) $(CFLAGS) $(BASE_FLAGS) $(if $(findstring comm_mpi,$<),$(MPI_CFLAGS)) \
	    $(if $(findstring base/version.c,$<),-DBUILD_COMPILER='"$(shell $(CC) --version | head -n 1)"') \
	    -c -o $@ $<
# GPT-2's merges, embedded as they are.
$(B)/llmc/text/vocabulary.o: llmc/text/gpt2_vocab/vocab.bpe Makefile
	$(call say,EMBED,$<)
	$(into) { printf '%s\n' 'const unsigned char vocabulary_merges[] = {'; \
	    od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; printf '%s\n' '0};' \
	    'const unsigned long vocabulary_merges_bytes = sizeof(vocabulary_merges) - 1;'; } | \
	    $(CC) -O0 -x c -c -o $@ -

level_flags   = $(call march,$(1)) -Illmc/compute/cpu/lanes/$(call lanes,$(1)) -DCPU_LEVEL_NAME='"$(1)"' \
                -DCPU_LEVEL=$(call symbol,$(1))
define level_rules
$(B)/cpu/$(1)/%.o: llmc/compute/cpu/%.c Makefile
	$$(call say,CC,"$$< ($(1))")
	$$(into) $$(CC) $$(CPPFLAGS) $$(CFLAGS) $(call level_flags,$(1)) \
	    $$(if $$(findstring /x86/,$$<),$(BF16_FLAGS)) -c -o $$@ $$<
$(B)/ops/$(1)/%.o: dev/ops/%.c Makefile
	$$(call say,CC,"$$< ($(1))")
	$$(into) $$(CC) $$(CPPFLAGS) $$(CFLAGS) $(call level_flags,$(1)) -c -o $$@ $$<
$(B)/cpu/$(1).o: $(call cpu_objects,$(1))
	$$(Q)$$(CC) -r -nostdlib -o $$@ $$^ && $$(OBJCOPY) --wildcard --keep-global-symbol='cpu_level_x86_64_*' \
	    --keep-global-symbol='cpu_level_portable' $$@
$(B)/ops/$(1)/%: $(B)/ops/$(1)/%.o $(call cpu_objects,$(1)) $(B)/libllmc.a
	$$(call say,LINK,$$@)
	$$(into) $$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$(parts) -lcmocka $$(LDLIBS)
endef
$(foreach level,$(LEVELS),$(eval $(call level_rules,$(level))))

include dev/dev.mk scripts/install.mk

# ---- targets for people ------------------------------------------------------------------------------------
test: ## every test that this machine can run
test: $(PROGRAMS) $(MODULE_TESTS) $(OP_TESTS) $(HOST_TESTS) $(HOST_TOOLS) $(TEST_TOOLS) $(FAULT_TOOLS) \
    $(FUZZERS)
	$(Q)PROGRAMS=$(B) dev/test/run.sh $(MODULE_TESTS) $(OP_TESTS) $(HOST_TESTS) $(SHELL_TESTS)
verify: train_gpt2 ## does this machine compute the very bits of ours?
	$(Q)scripts/verify.sh
format: ## clang-format every source
	$(Q)git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

clean: ## remove what was built
	$(Q)rm -rf build $(PROGRAMS) $(CUDA_PROGRAMS) $(HOST_PROGRAMS)

help: ## this list
	@grep -hE '^[a-z_0-9-]+:.*##' Makefile scripts/install.mk dev/dev.mk | \
	    sed -E 's/^([a-z_0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 26
	@sed -n 's/^#@//p' scripts/install.mk

.PHONY: all has-nvcc test verify format clean help FORCE
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
