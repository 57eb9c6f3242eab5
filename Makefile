# Commands for a clone. Needs Python 3.11 or newer, git and make; everything else is downloaded into .tools and .venv.
# ARGS are passed on:  make run ARGS="--port 4300"   make test ARGS="-k feed"   make lock ARGS=--upgrade

BIN := .venv/bin
# Tests mostly wait for processes, sockets and clocks.
WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
# A clone with the development packages keeps them: `make run` then updates that larger set.
LOCKED := $(if $(wildcard .venv/dev.stamp),dev,base)
COMPILE := sh scripts/uv.sh pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(ARGS)
EXTRAS := --extra claude --extra acp --extra code --extra monty --extra otel --extra sandbox

.PHONY: help run test check bench search-eval lint-eval marks-eval test-all lock docs conformance screenshots fmt clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' Makefile

run: .venv/$(LOCKED).stamp ## install, then run the crib and open the console
	@$(BIN)/toolcrib serve --open $(ARGS)

test: .venv/dev.stamp ## install everything, then run the tests; slow ones are skipped visibly
	@sh scripts/test.sh --numprocesses $(WORKERS) --dist worksteal $(ARGS)

check: .venv/dev.stamp ## lint, format, types, import contract, sizes, changelog, style counts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python scripts/check_sizes.py
	@$(BIN)/python scripts/check_changelog.py
	@$(BIN)/python scripts/check_style.py

bench: .venv/dev.stamp ## measure the crib beside the MCP SDK's own server and others; table, and JSON in bench/results
	@sh scripts/programs.sh peers || true # without them, their rows show "not installed"
	@$(BIN)/python -m bench $(ARGS)

search-eval: .venv/dev.stamp ## measure the search on the public sets in TOOLCRIB_DATA
	@$(BIN)/python scripts/search_eval.py "$(TOOLCRIB_DATA)" $(ARGS)

lint-eval: .venv/dev.stamp ## measure the lint of tool definitions on public sets in TOOLCRIB_DATA (docs/lint.md)
	@$(BIN)/python scripts/lint_eval.py $(ARGS) "$${TOOLCRIB_DATA:?is not set. Clone the sets of docs/lint.md into a directory first.}"

marks-eval: .venv/dev.stamp ## measure data-flow rules with AgentDojo, installed beside this project (docs/permissions.md)
	@[ -x .tools/agentdojo/bin/python ] || { python3 -m venv .tools/agentdojo && .tools/agentdojo/bin/pip install -q agentdojo==0.1.35; }
	@$(BIN)/python scripts/marks_eval.py $(ARGS) .tools/agentdojo/bin/python

test-all: check ## all tests, also slow ones, and both commands of the README in a fresh clone
	@TOOLCRIB_TEST_ALL=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)
	@scripts/fresh_clone.sh

docs: .venv/dev.stamp ## generate docs/reference from the code, then build the site and check its links
	@$(BIN)/python scripts/reference.py
	@sh scripts/site.sh

conformance: .venv/dev.stamp ## run the official conformance suite and write docs/conformance.md from its counts
	@PYTHONPATH=tests $(BIN)/python -m conformance.page

screenshots: .venv/dev.stamp ## take pictures of every screen of the console into docs/screenshots
	@$(BIN)/python scripts/screenshots.py

lock: ## pin all dependencies again in requirements/ (ARGS=--upgrade for newer ones)
	@$(COMPILE) --group tools --output-file requirements/tools.txt
	@$(COMPILE) pyproject.toml --group build $(EXTRAS) --output-file requirements/base.txt
	@$(COMPILE) pyproject.toml --group build $(EXTRAS) --extra dev --extra postgres --extra keyring --extra search \
		--constraints requirements/base.txt --output-file requirements/dev.txt
	@$(COMPILE) requirements/servers.in --output-file requirements/servers.txt
	@$(COMPILE) requirements/peers.in --output-file requirements/peers.txt
	@$(COMPILE) requirements/fastmcp.in --output-file requirements/fastmcp.txt
	@$(COMPILE) requirements/docs.in --output-file requirements/docs.txt
	@$(COMPILE) pyproject.toml requirements/frameworks.in --constraints requirements/base.txt \
		--output-file requirements/frameworks.txt
	@npm install --prefix requirements/node --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
	@npm install --prefix requirements/agents --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
	@npm install --prefix requirements/apps --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
	@npm install --prefix requirements/ui_servers --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
	@npm install --prefix requirements/clients --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

fmt: .venv/dev.stamp ## format, and fix what the linter can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove everything that make created
	@rm -rf .tools .venv build dist bench/results .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests bench scripts -type d -name __pycache__ -prune -exec rm -rf {} +

.venv/%.stamp: requirements/%.txt requirements/tools.txt pyproject.toml
	@sh scripts/install.sh $*
