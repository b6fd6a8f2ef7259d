# make demo      install into .venv and run examples/quickstart.py
# make test      install into .venv and run the tests
# make test-all  the slow tests, which repeat what others show or take long
# make docs      install into .venv and make the site, docs/_build/html/index.html; needs no network then
# make docs-fast the same without running the cells of its pages, in docs/_build/fast
# make dist      wheel and source distribution; the wheel runs the README's first example by itself
# make lint      ruff, and import-linter: who may import whom
# make versions  the oldest and the newest versions that pyproject.toml allows, on each Python
# make canary    the newest pre-releases, whatever it allows
# make machines  the tests as other machines run them: other processors, one core, beside other work
# make neighbours  the newest packages that build on PyMC, all installed beside this one
# make coverage  which lines the tests run, of those that are not compiled
.PHONY: demo test test-all docs docs-fast dist lint versions canary neighbours machines coverage

# The first Python from 3.12 on: python3 (with pyenv, what .python-version names), or a named one.
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 \
	$(HOME)/.pyenv/versions/3.1[2-9]*/bin/python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null \
	&& { echo $$python; break; }; done)

demo: .venv/installed-examples
	@echo "== Running examples/quickstart.py"
	@.venv/bin/python examples/quickstart.py

# A file stays on one worker, so that its models and steps are compiled once; in the order of their
# names, as a file of few tests may be a long one.
PYTEST := .venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --durations 20

test: .venv/installed-dev
	@echo "== Running the tests"
	@$(PYTEST) -m "not slow"

test-all: .venv/installed-dev
	@echo "== Running the slow tests"
	@$(PYTEST) -m slow

# -n: a link that leads nowhere is an error; -W: and so is each warning.
docs: .venv/installed-docs
	@echo "== Running the cells of its pages"
	@.venv/bin/python docs/cells.py
	@echo "== Making the site"
	@.venv/bin/python -m sphinx -nWq --keep-going -c docs -d docs/_build/doctrees . docs/_build/html
	@echo "docs/_build/html/index.html"

docs-fast: .venv/installed-docs
	@echo "== Making the site without running cells"
	@.venv/bin/python -m sphinx -nWq --keep-going -c docs -d docs/_build/doctrees-fast \
	-D nb_execution_mode=off . docs/_build/fast
	@echo "docs/_build/fast/index.html"

dist: .venv/installed-dev
	@rm -rf dist
	@.venv/bin/python -m hatchling build -d dist
	@$(PYTHON) -m venv dist/venv
	@echo "== Installing the wheel in dist/venv"
	@dist/venv/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@awk '/^```python/ {on = 1; next} on && /^```/ {exit} on' README.md > dist/first_example.py
	@echo "== Running the first example of the README"
	@cd dist && venv/bin/python first_example.py

lint: .venv/installed-dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/lint-imports --no-cache

coverage: .venv/installed-dev
	@echo "== Running the tests, and looking which lines they run"
	@$(PYTEST) -m "not slow" --cov

versions: .venv/installed-dev
	@.venv/bin/python tests/tools/versions.py

canary: .venv/installed-dev
	@.venv/bin/python tests/tools/versions.py --with canary

neighbours: .venv/installed-dev
	@.venv/bin/python tests/tools/neighbours.py

machines: .venv/installed-dev
	@.venv/bin/python tests/tools/machines.py; failed=$$?; \
	.venv/bin/python tests/tools/versions.py 3.13 --whole && exit $$failed

.venv/installed-%: pyproject.toml
ifeq ($(PYTHON),)
	$(error pymc_kameleon needs Python 3.12 or newer. None was found as python3, python3.14, \
	python3.13 or python3.12; install one from python.org or with your package manager)
endif
	@echo "== Creating .venv with $$($(PYTHON) --version)"
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@echo "== Installing pymc_kameleon and what it needs ($*): a minute or two, the first time"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
