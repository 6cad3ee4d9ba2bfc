//! A model with its weights, after all checks.

use std::collections::BTreeMap;

use crate::weights::WeightFiles;
use crate::weights_id::weights_id;
use crate::{DecoderSpec, Dtype, GenerationConfig, ModelError, ModelFiles, ModelSource, Part, TensorFile, TensorView};

pub struct Model {
    pub spec: DecoderSpec,
    pub generation: GenerationConfig,
    pub files: ModelFiles,
    weights: WeightFiles,
    weights_id: String,
}

impl Model {
    /// Maps the weights and checks that each one that the configuration needs exists and has its shape.
    pub fn open(source: &ModelSource) -> Result<Self, ModelError> {
        let files = ModelFiles::open(source)?;
        let mut spec = files.decoder()?;
        let generation = files.generation()?;
        let weights = WeightFiles::open(source, &files)?;
        for part in spec.parts() {
            weights.check(&spec, part)?;
        }
        let weights_id = weights_id(&spec, |part| weights.tensor(&spec, part))?;
        spec.dtype = most_used_dtype(&spec, &weights)?;
        Ok(Self { spec, generation, files, weights, weights_id })
    }

    pub fn name(&self) -> &str {
        self.files.name()
    }

    /// Equal for models with equal weights and configuration.
    pub fn weights_id(&self) -> &str {
        &self.weights_id
    }

    /// A weight of [`DecoderSpec::parts`]; the head of a tied model is its embedding.
    pub fn tensor(&self, part: Part) -> Result<TensorView<'_>, ModelError> {
        self.weights.tensor(&self.spec, self.kept_as(part)?)
    }

    /// The position of a weight in its file; `None` if it is inside this binary.
    pub fn tensor_file(&self, part: Part) -> Result<Option<TensorFile>, ModelError> {
        self.weights.file(&self.spec, self.kept_as(part)?)
    }

    fn kept_as(&self, part: Part) -> Result<Part, ModelError> {
        match part {
            Part::Head if self.spec.tied_head => Ok(Part::Embedding),
            Part::Layer(layer, inner) if layer >= self.spec.layers || !self.spec.has(inner) => {
                Err(ModelError::NoSuchPart(part))
            }
            part => Ok(part),
        }
    }
}

fn most_used_dtype(spec: &DecoderSpec, weights: &WeightFiles) -> Result<Dtype, ModelError> {
    let mut elements: BTreeMap<Dtype, usize> = BTreeMap::new();
    for part in spec.parts() {
        let view = weights.tensor(spec, part)?;
        *elements.entry(view.dtype).or_default() += view.shape.iter().product::<usize>();
    }
    Ok(elements.into_iter().max_by_key(|(_, count)| *count).map_or(spec.dtype, |(dtype, _)| dtype))
}
