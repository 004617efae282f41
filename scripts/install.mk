# Included by the Makefile: make install. PREFIX, DESTDIR and the folders are those of GNU's coding standards.

PREFIX  ?= /usr/local
DESTDIR ?=
bindir  ?= $(PREFIX)/bin
datadir ?= $(PREFIX)/share
mandir  ?= $(datadir)/man
# Here bash-completion looks for a file of the program's name when the program is first completed.
completionsdir ?= $(datadir)/bash-completion/completions
recipesdir ?= $(datadir)/train_gpt2/config
INSTALL ?= install

# The programs write their own pages, from their tables of options.
PAGES := $(foreach name,train_gpt2 tokenize,$(B)/share/$(name).1 $(B)/share/$(name).bash)
page = $(into) $< --help=$(1) >$@.tmp && mv $@.tmp $@
$(B)/share/train_gpt2.1: $(B)/train_gpt2
	$(call page,man)
$(B)/share/train_gpt2.bash: $(B)/train_gpt2
	$(call page,bash)
$(B)/share/tokenize.1: $(B)/data_prep/tokenize
	$(call page,man)
$(B)/share/tokenize.bash: $(B)/data_prep/tokenize
	$(call page,bash)
pages: $(PAGES) ## man pages and bash completions, in build/*/share

# The CUDA program is installed where it has been built.
CUDA_BUILT = $(wildcard train_gpt2cu)
to = $(DESTDIR)$(1)
RECIPES := $(wildcard scripts/config/*.conf)
install: $(PROGRAMS) $(PAGES) ## programs, man pages, completions and recipes: PREFIX=/usr/local DESTDIR=
	$(Q)$(INSTALL) -d $(foreach d,$(bindir) $(mandir)/man1 $(completionsdir) $(recipesdir),"$(call to,$(d))")
	$(Q)$(INSTALL) -m 755 train_gpt2 data_prep/tokenize $(CUDA_BUILT) "$(call to,$(bindir))"
	$(Q)$(INSTALL) -m 644 $(filter %.1,$(PAGES)) "$(call to,$(mandir)/man1)"
	$(Q)$(INSTALL) -m 644 $(B)/share/train_gpt2.bash "$(call to,$(completionsdir)/train_gpt2)"
	$(Q)$(INSTALL) -m 644 $(B)/share/tokenize.bash "$(call to,$(completionsdir)/tokenize)"
	$(Q)ln -sf train_gpt2.1 "$(call to,$(mandir)/man1/train_gpt2cu.1)"
	$(Q)ln -sf train_gpt2 "$(call to,$(completionsdir)/train_gpt2cu)"
	$(Q)$(INSTALL) -m 644 $(RECIPES) "$(call to,$(recipesdir))"
	$(call say,INSTALL,"$(call to,$(bindir)): train_gpt2 tokenize $(CUDA_BUILT)")
INSTALLED = $(addprefix $(bindir)/,train_gpt2 tokenize train_gpt2cu) \
            $(addprefix $(mandir)/man1/,train_gpt2.1 tokenize.1 train_gpt2cu.1) \
            $(addprefix $(completionsdir)/,train_gpt2 tokenize train_gpt2cu) \
            $(RECIPES:scripts/config/%=$(recipesdir)/%)
uninstall: ## remove what install wrote, by the same PREFIX and DESTDIR
	$(Q)rm -f $(foreach file,$(INSTALLED),"$(call to,$(file))")
	$(Q)rmdir "$(call to,$(recipesdir))" "$(call to,$(dir $(recipesdir)))" 2>/dev/null || true

# What `make help` says of switches.
#@
#@Switches, with any target:
#@  MPI=0  CUDA=0  NCCL=0      leave out Open MPI, the tests of the CUDA sources, NCCL
#@  CC=clang  CXX=..           another compiler; a folder of build/ of its own
#@  WERROR=1                   a warning is an error, as in CI
#@  OPTIMIZE=-O1               another level of optimisation
#@  SANITIZE=address,undefined or thread
#@  NVCC=..  GPUS="-gencode .."  another nvcc, other GPUs than sm_80 and sm_90a
#@  PREFIX=..  DESTDIR=..      where install writes: DESTDIR/PREFIX/bin ..
#@  ONEDNN=1                   oneDNN beside our products in dev/ops/bench_matmul
#@  V=1                        shows each command

.PHONY: pages install uninstall
