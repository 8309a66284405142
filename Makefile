# Everything is set up by these targets in .venv: nothing is assumed but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: demo test lint types unit zoo-verify clean

demo: $(VENV)/.ready ## fetch a real model and real faces, evaluate, write a report
	$(BIN)/onnxfr demo

test: lint types unit ## everything CI checks

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (onnxfr and its dependencies; a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onnxfr needs Python 3.11+")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -qq --constraint constraints.txt --editable '.[cpu]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "adding the test tools"
	@$(PIP) install -qq --constraint constraints.txt --editable '.[cpu,dev]'
	@# onnx2torch asks for torchvision, which it needs for two operators no face network has.
	@$(PIP) install -qq --no-deps --constraint constraints.txt onnx2torch
	@touch $@

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy cannot follow the mapped folders of an editable install, so it gets a tree of links.
types: $(VENV)/.ready-dev
	@rm -rf build/types && mkdir -p build/types/onnxfr
	@ln -s $(CURDIR)/onnxfr/* $(CURDIR)/evaluators $(CURDIR)/exporters $(CURDIR)/model_zoo build/types/onnxfr/
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p onnxfr

# The report's test wants a real browser; where CI may install one, it does.
unit: $(VENV)/.ready-dev
	@if [ "$$CI" = true ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null; then \
	  (apt-get -qq update && apt-get -qq install -y chromium) >/dev/null 2>&1 || true; fi
	$(ONE_THREAD) $(BIN)/pytest -n 2 --dist worksteal

zoo-verify: $(VENV)/.ready ## reproduce the accuracy on every card that can be had (slow, large downloads)
	$(BIN)/onnxfr zoo get --all --accept-licence
	$(BIN)/onnxfr zoo verify --data lfw:$${ONNXFR_DATA:-../shared/data}/lfw_112
	$(BIN)/onnxfr zoo verify dlib_resnet29 --data lfw:$${ONNXFR_DATA:-../shared/data}/lfw_250_fold1,folds=1

clean:
	rm -rf $(VENV) build
