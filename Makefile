# Two commands for a fresh machine: `make demo` and `make test`. Everything they install lives in .venv.
.NOTPARALLEL:
.PHONY: help demo test drafter venv format lint types walls unit browser lock clean

BIN := .venv/bin
ARGS ?=
export PYTHON TORCH

help: ## list the targets
	@echo "usage: make TARGET [PYTHON=...] [TORCH=...] [ARGS=...]"
	@echo
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '%-10s %s\n' "$$name" "$$what"; done
	@echo
	@echo "PYTHON  the Python to build .venv on (3.11 or newer), for example PYTHON=python3.12"
	@echo "TORCH   what pip shall install as torch; without it the pinned CPU build. For example"
	@echo "          TORCH='torch==2.13.0'      the default build of your package index (on Linux: CUDA, several GB)"
	@echo "          TORCH='torch==2.13.0+cpu'  the CPU build, from an index named by PIP_EXTRA_INDEX_URL"
	@echo "        The choice is remembered until another one is made."
	@echo "ARGS    further words for dspark (demo) or pytest (unit)"

demo: venv ## the default model with and without DSpark, side by side
	@$(BIN)/dspark demo $(ARGS)

test: lint types walls unit ## all checks: what CI runs

drafter: venv ## train the shipped drafter anew, from nothing but its target (hours)
	@scripts/drafter.sh

venv: ## set up .venv (the other targets do this by themselves)
	@scripts/setup.sh

format: venv ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

lint: venv ## style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: venv ## static types
	@$(BIN)/mypy

walls: venv ## import walls between the rooms
	@$(BIN)/lint-imports

unit: venv ## the tests alone, for example: make unit ARGS='tests/verify -x'
	@$(BIN)/pytest $(ARGS)

browser: venv ## the tests of the server's page in headless Chromium, which must be installed
	@scripts/browser.sh $(ARGS)

lock: venv ## resolve requirements/lock.txt anew (UPGRADE=1: to the newest versions)
	@scripts/lock.sh

clean: ## remove .venv and all caches of this checkout
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
