# The same checks as continuous integration.
check: fmt clippy doc test

fmt:
    cargo fmt --all -- --check

clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

test:
    ./test.sh

# Licences and advisories; needs cargo-deny and its advisory database.
deny:
    cargo deny check

bench:
    cargo bench --workspace --locked

# Review changed snapshots; needs cargo-insta.
review:
    cargo insta review
