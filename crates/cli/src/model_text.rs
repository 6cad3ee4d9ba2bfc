//! The tokenizer and chat template of a model, from its Hugging Face or GGUF files.

use baton_core::TokenId;
use baton_model::{ModelFiles, TokenizerFiles};
use baton_text::{ChatTemplate, Tokenizer, TokenizerConfig};

use crate::failure::Failure;

pub(crate) struct ModelText {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) bos_token: Option<TokenId>,
    pub(crate) eos_token: Option<TokenId>,
}

impl ModelText {
    pub(crate) fn open(files: &ModelFiles) -> Result<Self, Failure> {
        match files.tokenizer().map_err(Failure::user)? {
            TokenizerFiles::HuggingFace { tokenizer, config, chat_template } => {
                let tokenizer = Tokenizer::from_json(tokenizer).map_err(Failure::user)?;
                let config = match config {
                    Some(json) => TokenizerConfig::from_json(json).map_err(Failure::user)?,
                    None => TokenizerConfig::default(),
                };
                let id_of = |token: &Option<String>| token.as_deref().and_then(|token| tokenizer.token_to_id(token));
                Ok(Self {
                    template: ChatTemplate::from_files(&config, chat_template).map_err(Failure::user)?,
                    bos_token: id_of(&config.bos_token),
                    eos_token: id_of(&config.eos_token),
                    tokenizer,
                })
            }
            TokenizerFiles::Gguf { vocabulary, chat_template } => {
                let text_of = |id: Option<TokenId>| Some(vocabulary.tokens.get(id?.index())?.as_str());
                let (bos, eos) = (text_of(vocabulary.bos), text_of(vocabulary.eos));
                let template = chat_template.map(|source| ChatTemplate::from_gguf(source, bos, eos));
                Ok(Self {
                    tokenizer: Tokenizer::from_gguf(&vocabulary).map_err(Failure::user)?,
                    template: template.transpose().map_err(Failure::user)?,
                    bos_token: vocabulary.bos,
                    eos_token: vocabulary.eos,
                })
            }
        }
    }
}
