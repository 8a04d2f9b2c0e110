# The two commands of the README are `make demo` and `make test`; the rest are their parts.

CARGO ?= cargo
export RUST_BACKTRACE ?= 0
# Where builds with the profile dev are.
BUILT = $(or $(CARGO_TARGET_DIR),target)/debug

.PHONY: help demo demo-seaweedfs test fmt lint doc unit test-openapi test-foreign test-java test-stores test-c test-python libraries install-c long thrash setup bench bench-hdfs bench-hdfs-raid bench-seaweedfs deny clean

help:
	@echo "make demo   a cluster of real processes: put, lose four nodes, read, compare schemes, repair (5 min after the build)"
	@echo "make demo-seaweedfs   a real SeaweedFS cluster loses servers: compares ec.rebuild and Mend (a minute; root)"
	@echo "make test   fmt, clippy, rustdoc, unit, property, simulation and whole-process tests (CI runs it, then make test-stores)"
	@echo "make test-stores   the tests on a real HDFS and SeaweedFS that make test leaves out, because they take long (half an hour; root)"
	@echo "make test-foreign   the codes against the real encoders of Hadoop, Ozone, Ceph, klauspost, jerasure, ISA-L, Swift (part of test)"
	@echo "make test-openapi   docs/reference/openapi.json against the OpenAPI standard, by openapi-spec-validator (part of test)"
	@echo "make test-java   the Java requestor's own tests, and the jars (Maven; part of test)"
	@echo "make test-c, make test-python   the libraries for C and Python, with real clusters (part of test)"
	@echo "make install-c PREFIX=/usr/local   builds and installs the C library: header, libmend.so, libmend.a, mend.pc"
	@echo "make long   the same properties and simulations with many more seeds (an hour)"
	@echo "make thrash MINUTES=30 [SEED=…]   random use and random faults on real processes, held against a model (docs/reference/thrash.md)"
	@echo "make deny   every dependency's licence, source and known vulnerabilities (needs cargo-deny and the network; not part of test)"
	@echo "make bench-seaweedfs   Mend and ec.rebuild on the same losses of a real SeaweedFS cluster (three quarters of an hour; root)"
	@echo "make bench-hdfs   a real HDFS repairs lost blocks and DataNodes and reads, first alone, then with Mend (an hour and a half; root)"
	@echo "make bench-hdfs-raid   degraded reads, encoding and recovery of files with parity in the layout of HDFS-RAID (two hours; root)"
	@echo "  Interrupted, these three continue on the same commit. ARGS=\"--rates 100mbit --parts nodes\" selects other measurements for the same page"
	@echo "make bench  kernels beside ISA-L, encoding by code, the memory of a helper during a repair, and the lab's targets (root)"

setup:
	@scripts/setup

demo: setup
	$(CARGO) build --release --locked -p cli
	scripts/demo target/release/mend

demo-seaweedfs: setup
	scripts/seaweedfs target/seaweedfs
	$(CARGO) build --release --locked -p cli -p lab
	target/release/mend-lab seaweedfs demo

test: setup fmt lint doc unit test-openapi test-foreign test-java

fmt:
	$(CARGO) fmt --all --check

# The last step builds the libraries as users do: with the features that they declare themselves.
lint:
	scripts/prose
	scripts/links
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check -p capi -p python --locked

# The builds of `make test` select the whole workspace and a target that needs dev-dependencies, as the example does. With
# another selection, Cargo would choose other features, and build dependencies again.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --exclude capi --exclude python --no-deps --locked --lib --bins --example reads

unit: setup libraries
	scripts/unit
	$(CARGO) test --workspace --doc --locked

test-stores: setup
	scripts/unit --ignored cli/hdfs cli/seaweedfs

# The tests use these libraries. Building them first keeps the processors free for the tests.
libraries: setup
	@case ",$(MEND_SKIP)," in *,c,*) ;; *) scripts/c-library target/tmp/c dev ;; esac
	@case ",$(MEND_SKIP)," in *,python,*) ;; *) scripts/python-wheel target/tmp/python dev ;; esac

test-c: setup
	$(CARGO) test -p capi --locked
	$(CARGO) test --workspace --locked --test faults c::

test-python: setup
	$(CARGO) test --workspace --locked --test faults python::

install-c: setup
	scripts/c-library $(or $(PREFIX),/usr/local)

test-openapi: setup
	scripts/openapi target/openapi

test-java: setup
	mvn -q -B -f java/pom.xml package

test-foreign: setup
	scripts/foreign target/foreign
	$(CARGO) build --locked --workspace --exclude python --bin foreign --example reads
	$(BUILT)/foreign target/foreign

long: setup
	MEND_SIM_RUNS=200000 PROPTEST_CASES=5000 $(CARGO) test --workspace --locked --release

thrash: setup
	MEND_THRASH_SECONDS=$$(($(or $(MINUTES),10) * 60)) MEND_THRASH_SEED=$(SEED) $(CARGO) test -p cli --locked --release --test thrash

bench: setup
	$(CARGO) bench -p gf --bench table
	$(CARGO) bench -p repair --bench encode
	$(CARGO) build --release --locked -p cli -p lab
	scripts/memory target/release/mend
	target/release/mend lab bench

bench-seaweedfs: setup
	scripts/seaweedfs target/seaweedfs
	$(CARGO) build --release --locked -p cli -p lab
	target/release/mend-lab seaweedfs bench $(ARGS)

bench-hdfs: setup
	scripts/hdfs target/hdfs
	$(CARGO) build --release --locked -p cli -p lab
	target/release/mend-lab hdfs bench $(ARGS)

bench-hdfs-raid: setup
	scripts/hdfs target/hdfs
	$(CARGO) build --release --locked -p cli -p lab
	target/release/mend-lab hdfs-raid $(ARGS)

# CHECKS="licenses bans sources" does without the advisory database.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	$(CARGO) deny check $(CHECKS)

clean:
	$(CARGO) clean
