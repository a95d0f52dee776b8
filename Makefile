# Thin targets: each one runs what a person would type.
SHELL := /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
CARGO := $(shell command -v cargo 2>/dev/null)
LIBDIR ?= $(PREFIX)/lib
BINARY := target/release/flowgauge
# Bytes of the command without symbols; with GNU ld, or before glibc 2.36, it is larger.
BUDGET := 8232000
LIBRARY := target/release/libflowgauge
DEBUG = $(or $(CARGO_TARGET_DIR),target)/debug
MATURIN := target/maturin/bin/maturin
DOCS_VENV := target/docs
PYTHON_VENV := target/python
SPARK_VENV := target/spark
SWITCH = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/flowgauge/ovs-3.1/switch
SWITCH_FIGURES := emc emc-many megaflow megaflow-many port-to-port port-to-port-many nitro-fig2 skipper-fig5 today
PACKAGES := -p flowgauge-capi
AGENT := --features agent,kafka
# What python-test builds and tests.
WITHOUT_PYTHON := --workspace --exclude flowgauge-python
# The agent and what only it needs are no part of the default build; agent-test tests them, among the other
# packages: alone, it would ask for other features of what it shares with them, which would be compiled again.
WITHOUT_AGENT := $(WITHOUT_PYTHON) --exclude flowgauge-agent --exclude flowgauge-parquet
AGENT_FEATURES := --features flowgauge/agent,flowgauge/kafka
WITH_AGENT := $(WITHOUT_PYTHON) $(AGENT_FEATURES)
AGENT_TESTS := $(WITH_AGENT) --lib $(addprefix --test ,$(basename $(notdir $(wildcard crates/agent/tests/*))))
# The vector instructions that are not the default on this processor.
OTHER_ISA := $(shell grep -qs GenuineIntel /proc/cpuinfo && echo avx512 || echo avx2)
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: build docs size dpdk agent deb package-test library python demo demo-agent query-bench collect-bench demo-network test agent-test python-test python-venv spark-test spark-venv console-test prometheus-test dpdk-test live-test lint bench python-bench spark-bench live-bench agent-bench accuracy gate speed golden tasks-expected deny fuzz interop ipfix-test kafka-build kafka-test kafka-agent-test kafka-collect-test records-test html-test lab lab-dpdk peers-dpdk ovs ovs-test ovs-bench loom install uninstall soak soak-agent kafka-there cargo-there

build: cargo-there ## release build
	cargo build --release --locked

size: build ## the command without symbols, and whether it keeps within its budget
	@strip -o $(BINARY).stripped $(BINARY); bytes=$$(stat -c %s $(BINARY).stripped); rm $(BINARY).stripped; \
	echo "$$bytes bytes of $(BUDGET)"; [ $$bytes -le $(BUDGET) ]

dpdk: cargo-there ## release build with ports of DPDK (live --engine dpdk); as root it installs the packages for it
	@pkg-config --exists 'libdpdk >= 22.11' 2>/dev/null || bash tests/packages.sh libdpdk-dev pkg-config
	cargo build --release --locked --features dpdk

agent: kafka-there ## release build with the agent (run, check); as root it installs OpenSSL and a C++ compiler, which librdkafka asks for
	cargo build --release --locked $(AGENT)

deb: agent ## a Debian package of the agent below target/debian; installs cargo-deb where it is missing
	@cargo deb --version >/dev/null 2>&1 || cargo install --locked cargo-deb
	mkdir -p target/package
	$(BINARY) man > target/package/flowgauge.1
	$(BINARY) completions bash > target/package/flowgauge.bash
	$(BINARY) completions zsh > target/package/_flowgauge
	$(BINARY) completions fish > target/package/flowgauge.fish
	cargo deb --package flowgauge --no-build --strip --output target/debian/

package-test: deb ## the package is installed and removed, and the image and compose.yaml are linted; as root
	bash tests/package.sh target/debian/flowgauge_$(VERSION)-1_*.deb

library: cargo-there ## libflowgauge for programs in C, static and shared
	cargo build --release --locked $(PACKAGES)
	cp $(LIBRARY)_capi.a $(LIBRARY).a
	strip --strip-debug $(LIBRARY).a
	crates/capi/link.sh $(LIBRARY).a $(LIBRARY).so.1

python: cargo-there ## a wheel of the Python package flowgauge below target/wheels; installs maturin below target
	@[ -x $(MATURIN) ] || { python3 -m venv target/maturin && target/maturin/bin/pip install --quiet 'maturin>=1.16,<2'; }
	$(MATURIN) build --quiet --release --locked --manifest-path crates/python/Cargo.toml --out target/wheels

docs: ## the book of docs/ below target/book, where a dead link is an error; installs mkdocs-material below target
	@[ -x $(DOCS_VENV)/bin/mkdocs ] || { python3 -m venv $(DOCS_VENV) && $(DOCS_VENV)/bin/pip install --quiet -r docs/requirements.txt; }
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

demo: build ## a real capture, and a generated one of a million packets
	@bash tests/demo.sh $(BINARY)

demo-agent: agent ## an agent over a replayed stream with a flood in it, until Ctrl-C
	@bash tests/demo_agent.sh $(BINARY)

demo-network: agent ## three agents, Apache Kafka and a collector that reports on all of them; needs java and mvn
	@bash tests/demo_network.sh $(BINARY) $(CAPTURES)

# The statistical laws of bounds run once: what is stored is the same to the bit on each instruction set.
test: cargo-there ## all tests but the agent's, which need neither root nor network; the laws of all summaries on each instruction set
	cargo test $(WITHOUT_AGENT) --locked
	for isa in scalar $(OTHER_ISA); do FLOWGAUGE_ISA=$$isa cargo test --quiet --locked $(WITHOUT_AGENT) --lib --test laws -- --skip bounds::no_absent_flow --skip bounds::bounds_of_listed_flows || exit 1; done

# Its tests mostly wait: more than there are cores run at once. rustdoc would look for the job slots of a parallel
# make, which it is not given.
agent-test: kafka-there ## the agent's tests: processes killed, reloaded, on a full disk (that needs root); before mocked brokers
	RUST_TEST_THREADS=4 cargo test --locked $(AGENT_TESTS)
	MAKEFLAGS= cargo test --locked $(WITH_AGENT) --doc -- crates/agent crates/parquet
	cargo test --locked $(WITH_AGENT) --test command parquet

console-test: kafka-there ## the console of an agent in Chromium, compared with its report files; as root it installs Chromium
	cargo build --locked -p flowgauge $(AGENT)
	bash tests/console.sh $(DEBUG)/flowgauge

prometheus-test: kafka-there ## Debian's Prometheus scrapes an agent; as root it installs it
	cargo build --locked -p flowgauge $(AGENT)
	bash tests/prometheus.sh $(DEBUG)/flowgauge

# In the build of agent-test: the same command alone would have other dependencies.
kafka-build: kafka-there
	cargo test --no-run --locked $(AGENT_TESTS)

kafka-test: kafka-agent-test kafka-collect-test ## agents, a collector and a job on Spark before Apache Kafka, whose broker is killed midway; needs java, mvn and python3

kafka-agent-test: kafka-build
	bash tests/kafka.sh $(DEBUG)/flowgauge

kafka-collect-test: kafka-build spark-venv
	bash tests/collect.sh $(DEBUG)/flowgauge $(SPARK_VENV)/bin/python

live-test: cargo-there ## live capture in network namespaces; needs root, iproute2 and python3
	FLOWGAUGE_LIVE=1 cargo test --locked -p flowgauge --test command live::
	FLOWGAUGE_LIVE=1 cargo test --locked -p flowgauge-live --test interfaces

python-test: python-venv ## the Python package with NumPy, pyarrow, pandas and polars, and its notebook; needs python3 and a network
	cd crates/python && ../../$(PYTHON_VENV)/bin/python -m pytest

spark-test: spark-venv ## archives and streams on Spark, in one process and on a cluster of two workers; needs python3, java and a network
	cd crates/python && ../../$(SPARK_VENV)/bin/python -m pytest tests/test_spark.py tests/test_streaming.py

spark-venv: python
	@[ -x $(SPARK_VENV)/bin/pytest ] || python3 -m venv $(SPARK_VENV)
	$(SPARK_VENV)/bin/pip install --quiet -r crates/python/tests/requirements-spark.txt
	$(SPARK_VENV)/bin/pip install --quiet --no-deps --force-reinstall target/wheels/flowgauge-$(VERSION)-*.whl

python-venv: python
	@[ -x $(PYTHON_VENV)/bin/pytest ] || { python3 -m venv $(PYTHON_VENV) && $(PYTHON_VENV)/bin/pip install --quiet -r crates/python/tests/requirements.txt; }
	$(PYTHON_VENV)/bin/pip install --quiet --no-deps --force-reinstall target/wheels/flowgauge-$(VERSION)-*.whl

dpdk-test: kafka-there ## ports of DPDK that replay captures, as any user; skipped where there is no DPDK
	@if pkg-config --exists 'libdpdk >= 22.11' 2>/dev/null; then \
		cargo clippy --workspace --all-targets --locked --features flowgauge/dpdk,flowgauge-lab/dpdk -- -D warnings \
		&& cargo test --workspace --locked --features flowgauge/dpdk --test command --test ports -- dpdk a_port_has \
		&& cargo test --locked -p flowgauge $(AGENT),dpdk --test agent dpdk; \
	else \
		echo "skipped: pkg-config finds no libdpdk of version 22.11 or later; 'make dpdk' as root installs it"; \
	fi

lint: kafka-there ## format, clippy, documentation, and that tests name their seed
	@! grep -rnE '(^|[^:A-Za-z])Config::default\(\)' crates/engine/tests || { echo "the seed would be random; use Config::seeded(N)" >&2; exit 1; }
	@! grep -rhE -A1 'CARGO_BIN_EXE' crates/cli/tests | grep -E '"(analyze|live)"' | grep -v -- --seed || { echo "the seed would be random; run the command by run::flowgauge" >&2; exit 1; }
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --workspace $(AGENT_FEATURES) --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

golden: cargo-there ## writes the expected stored forms, filter answers, C header, picture of the README and tables of docs/algorithms.md anew, after a change that is meant; needs libpcap
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-core --test laws golden
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-engine --test snapshot golden
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-filter --test libpcap written
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-capi --test header
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-records --test fuzz_corpus
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge --test command -- readme catalog
	FLOWGAUGE_GOLDEN=write cargo test --locked -p flowgauge-options -p flowgauge-agent --lib schema

tasks-expected: build ## the expected answers of tests/tasks, made again by tshark, nfdump and tcpdump; as root it installs them
	@for tool in tshark nfpcapd tcpdump; do command -v $$tool >/dev/null || { bash tests/packages.sh tshark nfdump tcpdump || true; break; }; done
	python3 tests/tasks/expected.py $(BINARY)

deny: cargo-there ## licences and sources of the dependencies; installs cargo-deny where it is missing
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check bans licenses sources

bench: build ## the numbers of docs/performance.md and docs/compared.md: in memory, at the end of epochs, and a capture of 20 million packets
	cargo bench --workspace --locked
	cargo test --release --locked -p flowgauge-engine --test run -- --ignored --nocapture the_end_of_an_epoch
	cargo test --release --locked -p flowgauge-engine --test run -- --ignored --nocapture sampling_speed
	cargo test --release --locked -p flowgauge-records --test speed -- --ignored --nocapture
	bash bench/pipeline.sh $(BINARY)

python-bench: build python-venv ## the Python package beside the command: a capture of 20 million packets, and columns
	$(PYTHON_VENV)/bin/python bench/python.py $(BINARY)

spark-bench: build spark-venv ## archives on Spark beside the command: ten captures of two million packets
	$(SPARK_VENV)/bin/python bench/spark.py $(BINARY)

live-bench: build ## packets a second by AF_PACKET and AF_XDP on a pair of interfaces; needs root, iproute2 and python3
	python3 bench/live.py $(BINARY)

agent-bench: agent ## what an agent with all sinks costs at the kernel's rate on a pair of interfaces; needs root, iproute2 and python3
	python3 bench/agent.py $(BINARY)

query-bench: build ## a query over a day of snapshots of 1 MiB on one core; needs 10 GB of temporary space and of memory
	bash bench/query.sh $(BINARY)

collect-bench: agent ## what a collector of 100 agents costs, from memory and through Apache Kafka; needs java and mvn
	bash bench/collect.sh $(BINARY) cargo bench --locked -p flowgauge-agent --features kafka --bench collect --

accuracy: cargo-there ## how accurate every algorithm is: writes docs/accuracy.tsv
	cargo run --release --locked -p flowgauge-lab -- accuracy -o docs/accuracy.tsv

speed: cargo-there ## updates a second of every algorithm: writes docs/speed*.tsv and docs/agg-evict.tsv; wants an idle machine
	cargo run --release --locked -p flowgauge-lab -- speed -o docs/speed.tsv
	cargo run --release --locked -p flowgauge-lab -- speed --profile zipf-1.1 -o docs/speed-zipf-1.1.tsv
	cargo run --release --locked -p flowgauge-lab -- speed --profile uniform -o docs/speed-uniform.tsv
	cargo run --release --locked -p flowgauge-lab -- sweep -o docs/agg-evict.tsv

gate: cargo-there ## fails where an algorithm is less accurate than docs/accuracy.tsv says
	cargo run --release --locked -p flowgauge-lab -- gate --baseline docs/accuracy.tsv

fuzz: cargo-there ## each fuzz target for FUZZ_SECONDS (600); needs a nightly toolchain
	bash fuzz/run.sh

loom: cargo-there ## the ring between threads, the change of epochs and the concurrent table, in all interleavings of small cases
	RUSTFLAGS="--cfg loom" cargo test --locked --target-dir target/loom -p flowgauge-kernel -p flowgauge-core --lib model

peers-dpdk: cargo-there ## other projects' structures beside ours, with those of the installed DPDK; skipped where there is none
	@if pkg-config --exists 'libdpdk >= 22.11' 2>/dev/null; then \
		cargo run --release --locked -p flowgauge-lab --features dpdk -- peers -o docs/peers.tsv; \
	else \
		echo "skipped: pkg-config finds no libdpdk of version 22.11 or later; install it first (Debian, Ubuntu: apt-get install libdpdk-dev pkg-config)"; \
	fi

ovs: library ## Open vSwitch with flowgauge, in a cache folder; as root it installs the packages for it
	ovs/build.sh
	ln -sf $(CURDIR)/$(LIBRARY).so.1 $(SWITCH)/lib/libflowgauge.so.1

ovs-bench: dpdk ## the cost of measuring in that switch: writes docs/lab/switch-*; wants root, 512 huge pages and an idle machine
	cargo run --release --locked -p flowgauge-lab -- run $(SWITCH_FIGURES:%=switch/%)

ovs-test: cargo-there ## that switch compared with 'flowgauge analyze' of the same captures; skipped before 'make ovs'
	@if [ -x $(SWITCH)/sbin/ovs-vswitchd ]; then \
		cargo build --locked -p flowgauge -p flowgauge-capi --features flowgauge/dpdk \
		&& crates/capi/link.sh $(DEBUG)/libflowgauge_capi.a $(DEBUG)/libflowgauge.so.1 \
		&& python3 ovs/test.py $(SWITCH) $(DEBUG)/flowgauge $(DEBUG)/libflowgauge.so.1 \
		&& FLOWGAUGE_SWITCH=$(SWITCH) cargo test --quiet --locked -p flowgauge-lab a_switch; \
	else \
		echo "skipped: no Open vSwitch with flowgauge in $(SWITCH); build it by 'make ovs'"; \
	fi

lab: cargo-there ## the papers' figures measured anew: writes docs/lab.md and docs/lab; wants an idle machine
	cargo run --release --locked -p flowgauge-lab -- run all

lab-dpdk: cargo-there ## at a port of DPDK: writes docs/lab/switch-dpdk.* and switch-zero-loss.*; wants an idle machine
	cargo run --release --locked -p flowgauge-lab --features dpdk -- run switch/dpdk switch/zero-loss

interop: cargo-there ## what Python reads of ours: DataSketches, pandas and DuckDB; needs python3 and a network
	cargo build --release --locked --features parquet
	bash tests/interop.sh $(BINARY)

ipfix-test: kafka-there ## flows that an agent exports, as nfcapd, nfacctd and (TCP) ipfixDump read them; as root it installs these
	cargo build --locked -p flowgauge $(AGENT)
	bash tests/ipfix.sh $(DEBUG)/flowgauge

records-test: kafka-there ## flow records of other exporters, as an agent and as nfcapd, sfcapd, nfacctd and sfacctd read them; as root it installs these
	cargo build --locked -p flowgauge $(AGENT)
	bash tests/records.sh $(DEBUG)/flowgauge

html-test: cargo-there ## pages of reports in Chromium, whose numbers must be those of JSON; needs npm, chromium and a network
	cargo build --locked -p flowgauge
	bash tests/html.sh $(DEBUG)/flowgauge

soak: kafka-there ## the long forms of the tests
	FLOWGAUGE_LONG=1 cargo test --release --workspace --locked
	cargo test --release --locked -p flowgauge-core --test suite packet -- --ignored
	FLOWGAUGE_LONG=1 cargo test --locked -p flowgauge $(AGENT) --test agent
	$(MAKE) soak-agent

soak-agent: agent ## an agent with all sinks over the epochs of a day in 15 minutes, whose memory must stay as it is
	python3 tests/soak_agent.py $(BINARY) 864

# In one build, in which both have the same dependencies.
install: PACKAGES += -p flowgauge
install: library ## binary, library, man pages and completions below PREFIX
	install -Dm644 $(LIBRARY).a $(DESTDIR)$(LIBDIR)/libflowgauge.a
	install -Dm755 $(LIBRARY).so.1 $(DESTDIR)$(LIBDIR)/libflowgauge.so.1
	ln -sf libflowgauge.so.1 $(DESTDIR)$(LIBDIR)/libflowgauge.so
	install -Dm644 crates/capi/flowgauge.h $(DESTDIR)$(PREFIX)/include/flowgauge.h
	install -Dm644 crates/capi/libflowgauge.3 $(DESTDIR)$(PREFIX)/share/man/man3/libflowgauge.3
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' crates/capi/flowgauge.pc.in \
	  | install -Dm644 /dev/stdin $(DESTDIR)$(LIBDIR)/pkgconfig/flowgauge.pc
	install -Dm755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/flowgauge
	$(BINARY) man | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/man/man1/flowgauge.1
	$(BINARY) completions bash | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flowgauge
	$(BINARY) completions zsh | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flowgauge
	$(BINARY) completions fish | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flowgauge.fish

uninstall: ## what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/flowgauge $(DESTDIR)$(PREFIX)/share/man/man1/flowgauge.1 \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flowgauge \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flowgauge \
	  $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flowgauge.fish \
	  $(DESTDIR)$(LIBDIR)/libflowgauge.a $(DESTDIR)$(LIBDIR)/libflowgauge.so.1 $(DESTDIR)$(LIBDIR)/libflowgauge.so \
	  $(DESTDIR)$(PREFIX)/include/flowgauge.h $(DESTDIR)$(PREFIX)/share/man/man3/libflowgauge.3 \
	  $(DESTDIR)$(LIBDIR)/pkgconfig/flowgauge.pc

# librdkafka is built from its source, by make; its configure script asks for a C++ compiler beside that of C.
kafka-there: cargo-there
	@{ command -v c++ && pkg-config --exists openssl; } >/dev/null 2>&1 || bash tests/packages.sh g++ libssl-dev pkg-config

cargo-there:
ifeq ($(CARGO),)
	@echo "cargo is missing: install Rust 1.90 or later from https://rustup.rs, or from your distribution where it is new enough" >&2; exit 1
endif
