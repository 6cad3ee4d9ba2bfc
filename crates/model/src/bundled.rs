//! Models inside the binary, so that it serves without other files.

/// Served when no model is named.
pub const DEFAULT_MODEL: &str = "storyteller-11m";

pub(crate) struct BundledModel {
    pub(crate) name: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

impl BundledModel {
    pub(crate) fn file(&self, name: &str) -> Option<&'static [u8]> {
        self.files.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes)
    }
}

macro_rules! bundle {
    ($name:literal: $($file:literal),+ $(,)?) => {
        BundledModel {
            name: $name,
            files: &[$(($file, include_bytes!(concat!("../../../models/", $name, "/", $file)))),+],
        }
    };
}

static BUNDLED: [BundledModel; 1] = [bundle!("storyteller-11m":
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)];

pub(crate) fn bundled(name: &str) -> Option<&'static BundledModel> {
    BUNDLED.iter().find(|model| model.name == name)
}

pub fn bundled_names() -> impl Iterator<Item = &'static str> {
    BUNDLED.iter().map(|model| model.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_bundled() {
        assert!(bundled(DEFAULT_MODEL).is_some());
    }
}
