# `just` lists these. None is needed: README's two commands do everything.

default:
    @just --list

# Serve the bundled model.
serve *args:
    cargo run --release -- serve {{args}}

# Every test: Rust, then end to end from Python.
test *args:
    scripts/test {{args}}

# What CI checks.
ci:
    .ci/run

# Format and lint, fixing what can be fixed.
tidy:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

# Licences, bans, sources (needs cargo-deny).
deny:
    cargo deny check licenses bans sources

# Speed of the bundled model beside this machine's ceilings.
measure *args:
    cargo run --release -p baton-bench --example measure -- {{args}}
