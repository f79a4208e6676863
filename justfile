# Run the same checks as continuous integration.
check: fmt clippy doc test

fmt:
    cargo fmt --all -- --check
    cargo fmt --manifest-path examples/own-crate/Cargo.toml -- --check

clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

test:
    ./test.sh

# Build and test examples/own-crate as what it is elsewhere: a crate of its own that depends on lumos.
own-crate:
    cargo test --manifest-path examples/own-crate/Cargo.toml

# Check licences and advisories; needs cargo-deny and its advisory database.
deny:
    cargo deny check

# Check advisories only; needs cargo-audit. With a copy of the database: just audit --no-fetch --db FOLDER
audit *arguments:
    cargo audit {{arguments}}

# Fuzz the parsers of untrusted bytes, ten minutes of processor time each; needs Linux and a C++ compiler.
fuzz seconds="600" *targets="":
    ./fuzz/run.sh {{seconds}} {{targets}}

# Run the attacks of docs/security.md in full on the release build, one line each; those of a row: `just attacks v05`.
attacks *filter="attacks::":
    cargo build --release --locked
    LUMOS_PROGRAM={{justfile_directory()}}/target/release/lumos LUMOS_ATTACKS=full \
        cargo test --locked --test program -- --nocapture --test-threads 1 {{filter}}

# Run the fault campaign: `just campaign --rounds 200 --seed 1 --jobs 2`. Repeat one round with `--seed 1 --round 17`.
campaign *arguments:
    LUMOS_NATS_SERVER_CURRENT="${LUMOS_NATS_SERVER_CURRENT:-$(tests/tools/current-nats-server.sh)}" cargo test --release --locked --test campaign -- {{arguments}}

# Run all tests with the long form of those that also have a short one.
long:
    LUMOS_ATTACKS=full LUMOS_DAMAGED=200 LUMOS_EMULATED=1000 LUMOS_GENERATED=50000 LUMOS_LEAVES=1000 LUMOS_SEQUENCES=200 LUMOS_SIMULATIONS=full LUMOS_VARIATIONS=all ./test.sh

# Run the tests of browsers with Chromium, where its headless shell is installed, too.
chromium:
    LUMOS_CHROMIUM=chromium cargo test --locked -p lumos-tools --lib -- browser

# Run the tests of the vector kernels on emulated ARM processors; needs qemu-user and gcc-aarch64-linux-gnu.
arm *processors:
    tests/tools/arm.sh {{processors}}

# Lint the program without its optional features, which compiles most dependencies again.
features:
    cargo clippy --workspace --no-default-features --lib --bins --locked -- -D warnings

# Lint and test Parquet exports and data files, whose crates take too long to compile for every check.
parquet:
    cargo clippy -p lumos-benchmarks -p lumos-reports --features lumos-benchmarks/parquet,lumos-reports/parquet --all-targets --locked -- -D warnings
    cargo test -p lumos-benchmarks --features parquet --lib --locked -- loading::parquet task_file
    cargo test -p lumos-reports --features parquet --lib --locked export::

# Read the exports of a run with their readers and compare the figures; needs the network once.
readers run *folder:
    tests/tools/readers.sh {{run}} {{folder}}

# Check pages with axe-core in Chromium and take screenshots: `just pages runs/first/report/index.html`.
pages *arguments:
    tests/tools/pages.sh {{arguments}}

bench:
    cargo bench --profile dist --workspace --locked

# Review changed snapshots; needs cargo-insta.
review:
    cargo insta review
