//! Selects the files of a repository that a model needs.

use crate::HubError;

const METADATA: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

pub(crate) fn is_weights(file: &str) -> bool {
    file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json")
}

/// All safetensors files with their metadata, or the only GGUF file.
pub(crate) fn select(repo: &str, files: &[String]) -> Result<Vec<String>, HubError> {
    let top_level = |file: &&String| !file.contains('/');
    let weights: Vec<&String> = files.iter().filter(top_level).filter(|file| is_weights(file)).collect();
    if !weights.is_empty() && files.iter().any(|file| file == "config.json") {
        let metadata = files.iter().filter(|file| METADATA.contains(&file.as_str()));
        return Ok(metadata.chain(weights).cloned().collect());
    }
    let ggufs: Vec<String> = files.iter().filter(|file| file.ends_with(".gguf")).cloned().collect();
    match ggufs.len() {
        0 => Err(HubError::NoModel { repo: repo.to_owned() }),
        1 => Ok(ggufs),
        _ => Err(HubError::Ambiguous { repo: repo.to_owned(), files: ggufs }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_model_are_selected() {
        let selected = |files: &[&str]| select("a/b", &files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>());
        assert_eq!(
            selected(&["README.md", "config.json", "model.safetensors", "onnx/model.onnx", "tokenizer.json"]).unwrap(),
            ["config.json", "tokenizer.json", "model.safetensors"]
        );
        assert_eq!(selected(&["README.md", "x.gguf"]).unwrap(), ["x.gguf"]);
        assert_eq!(selected(&["config.json", "x.gguf", "original/model.safetensors"]).unwrap(), ["x.gguf"]);
        assert!(matches!(selected(&["a.gguf", "b.gguf"]), Err(HubError::Ambiguous { files, .. }) if files.len() == 2));
        assert!(matches!(selected(&["pytorch_model.bin", "config.json"]), Err(HubError::NoModel { .. })));
    }
}
