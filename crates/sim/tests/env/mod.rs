//! Settings from the environment.

pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| match value.parse() {
        Ok(number) => number,
        Err(error) => panic!("{variable}={value}: {error}"),
    })
}
