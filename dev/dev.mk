# Included by the Makefile: module tests, benchmarks, fuzzers, and the targets of continuous integration.

FUZZERS := $(patsubst dev/fuzz/%.c,$(B)/fuzz/%,$(wildcard dev/fuzz/fuzz_*.c))
BENCHES := $(patsubst dev/bench/%.c,$(B)/bench/%,$(wildcard dev/bench/*.c))
define link_rule
$(B)/$(1)/%: $(B)/dev/$(1)/%.o $(2) $(LEVEL_OBJECTS) $(B)/libllmc.a
	$$(call say,LINK,$$@)
	$$(into) $$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$^ $(3) $$(LDLIBS)
endef
$(eval $(call link_rule,test,,-lcmocka))
$(eval $(call link_rule,bench))
$(eval $(call link_rule,fuzz,$(B)/dev/fuzz/driver.o))

# The same sources run by the CPU: fast, or with every access of a kernel checked (dev/host_cuda/README.md).
define host_rules
$(B)/$(1)/%.o: %.cu Makefile
	$$(call say,CXX,"$$< ($(1))")
	$$(into) $$(CXX) -x c++ -Wno-unknown-pragmas -Idev/host_cuda $$(CPPFLAGS) $$(CXXFLAGS) $(2) \
	    -DBUILD_GPUS='"none: the CPU runs them"' -c -o $$@ $$<
$(CUDA_PROGRAMS:%=$(B)/%_$(1)): $(B)/%cu_$(1): $(B)/$(1)/%.o $(call cuda_objects,$(1)) $(HOST_LIBS)
	$$(call say,LINK,$$@)
	$$(Q)$$(CXX) -fopenmp $$(LDFLAGS) -o $$@ $$(parts) $$(GPU_LIBS)
endef
$(eval $(call host_rules,host))
$(eval $(call host_rules,checked,-fsanitize=thread))
$(B)/%.o: %.cpp Makefile
	$(call say,CXX,$<)
	$(into) $(CXX) -Idev/host_cuda $(CPPFLAGS) $(CXXFLAGS) -c -o $@ $<

# The kernels for AVX512_BF16 and AMX, by the CPU's instructions and by emulated ones.
EMULATED_SOURCES := $(wildcard llmc/compute/cpu/matmul*.c llmc/compute/cpu/x86/matmul_*.c) \
                    dev/emulated_cpu/test_bf16_kernels.c \
                    dev/emulated_cpu/available_emulated.c
$(B)/emulated/%.o: %.c Makefile dev/dev.mk
	$(call say,CC,"$< (emulated)")
	$(into) $(CC) -Idev/emulated_cpu -Illmc/compute/cpu/lanes/soft $(CPPFLAGS) $(CFLAGS) $(BASE_FLAGS) \
	    -Wno-psabi -DCPU_LEVEL_NAME='"emulated"' -DCPU_LEVEL=cpu_level_emulated -c -o $@ $<
$(B)/test/test_bf16_emulated: $(EMULATED_SOURCES:%.c=$(B)/emulated/%.o) $(B)/libllmc.a
	$(call say,LINK,$@)
	$(into) $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
EMULATED_LEVEL := $(CPU_SOURCES) $(BF16_SOURCES) dev/emulated_cpu/levels_emulated.c
$(B)/emulated/levels.o: $(EMULATED_LEVEL:%.c=$(B)/emulated/%.o)
	$(Q)$(CC) -r -nostdlib -o $@ $^ && $(OBJCOPY) --keep-global-symbol=cpu_levels $@
$(B)/test_gpt2_emulated: $(B)/test_gpt2.o $(JUDGE) $(B)/emulated/levels.o $(B)/libllmc.a
	$(call say,LINK,$@)
	$(into) $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/test/test_bf16_x86_64: $(addprefix $(B)/dev/emulated_cpu/,test_bf16_kernels.o available_x86_64.o) \
    $(call cpu_objects,x86-64-v4) $(B)/libllmc.a
	$(call say,LINK,$@)
	$(into) $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

# Tests and benchmarks on a GPU or run by the CPU: folder of dev/, way, objects, libraries.
define tool_rule
$(B)/$(1)/$(2)/%: $(B)/$(2)/dev/$(1)/%.o $(call cuda_objects,$(2)) $(3)
	$$(into) $$(CXX) -fopenmp $$(LDFLAGS) -o $$@ $$(parts) $$(if $$(filter test%,$$*),-lcmocka) $(4)
endef
GPU_TOOL_LIBS := $(B)/cuda/nccl $(B)/libllmc.a
$(foreach f,ops bench,$(eval $(call tool_rule,$(f),cuda,$(GPU_TOOL_LIBS),$$(CUDA_LIBS) $$(GPU_LIBS))))
TOOL_LIBS := $(lastword $(LEVEL_OBJECTS)) $(HOST_LIBS)
$(foreach f,ops bench,$(foreach w,host checked,$(eval $(call tool_rule,$(f),$(w),$(TOOL_LIBS),$$(LDLIBS)))))

# Products at one level: build/mpi1/ops/x86-64-v4/bench_matmul; ONEDNN=1 puts oneDNN beside them.
define bench_matmul_rule
$(B)/ops/$(1)/bench_matmul: $(addprefix $(B)/dev/ops/bench_,peer_$(if $(filter 1,$(ONEDNN)),onednn,none).o \
    kernels_$(if $(filter x86-64-v4,$(1)),x86_64_v4,other).o)
endef
$(foreach level,$(LEVELS),$(eval $(call bench_matmul_rule,$(level))))
LDLIBS += $(if $(filter 1,$(ONEDNN)),-ldnnl)

# A library that makes calls of the C library fail, and what dev/fault/run.sh reads shards and counts with. No
# sanitizer: it is loaded into programs that bring their own.
$(eval $(call link_rule,fault))
$(B)/fault/inject.so: dev/fault/inject.c dev/fault/calls.h Makefile
	$(call say,LINK,$@)
	$(into) $(CC) -std=c11 -O2 -g $(WARNINGS) -I. -shared -fPIC -o $@ $< -ldl -lpthread
fault-tools: $(PROGRAMS:%=$(B)/%) $(FAULT_TOOLS) ## what dev/fault/run.sh needs

module-tests: $(MODULE_TESTS) ## the tests of modules alone
	$(Q)PROGRAMS=$(B) dev/test/run.sh $(MODULE_TESTS)
bench: $(BENCHES) ## the benchmarks under dev/bench
fuzz: $(FUZZERS) ## the fuzzers under dev/fuzz

# Under a sanitizer (SANITIZE=...): the modules, the best level's operations, the programs as users meet them.
SANITIZER_SHELL_TESTS := $(filter %_cli.sh %_reference.sh %_format.sh %_training.sh,$(SHELL_TESTS))
BEST_OP_TESTS := $(filter $(B)/ops/$(lastword $(LEVELS))/%,$(OP_TESTS))
sanitizer-tests: ## with SANITIZE=address,undefined
sanitizer-tests: $(PROGRAMS:%=$(B)/%) $(MODULE_TESTS) $(BEST_OP_TESTS) $(TEST_TOOLS)
	$(Q)PROGRAMS=$(B) dev/test/run.sh $(MODULE_TESTS) $(BEST_OP_TESTS) $(SANITIZER_SHELL_TESTS)
# libgomp is not built for TSan: only code without OpenMP.
THREAD_TESTS := $(addprefix $(B)/test/test_,loader writer)
thread-tests: $(B)/data_prep/tokenize $(THREAD_TESTS) ## with SANITIZE=thread
	$(Q)PROGRAMS=$(B) dev/test/run.sh $(THREAD_TESTS)

.PHONY: fault-tools module-tests bench fuzz sanitizer-tests thread-tests
