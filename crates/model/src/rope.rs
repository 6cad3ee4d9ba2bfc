//! Rotary embedding settings under the names of transformers 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`).

use crate::{Config, ModelError, RopeScaling, RopeSpec};

const DEFAULT_THETA: f64 = 10_000.0;

pub(crate) fn read(config: &Config) -> Result<RopeSpec, ModelError> {
    // A `rope_parameters` that holds one object per kind of layer has no `rope_type`, and no `rope_theta` either.
    let (scaling, theta) = match config.object("rope_parameters")? {
        Some(parameters) => {
            let theta = match parameters.positive("rope_theta")? {
                Some(theta) => Some(theta),
                None => config.positive("rope_theta")?,
            };
            (Some(parameters), theta)
        }
        None => (config.object("rope_scaling")?, config.positive("rope_theta")?),
    };
    refuse_partial_rotation(config)?;
    let scaling = match scaling {
        Some(fields) => {
            refuse_partial_rotation(&fields)?;
            read_scaling(&fields)?
        }
        None => RopeScaling::None,
    };
    Ok(RopeSpec { theta: theta.unwrap_or(DEFAULT_THETA), scaling })
}

fn read_scaling(fields: &Config) -> Result<RopeScaling, ModelError> {
    let name = if fields.get("rope_type").is_some() { "rope_type" } else { "type" };
    match fields.text(name)? {
        None if fields.get("factor").is_some() => Err(fields.wrong("rope_type", "a string", None)),
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: fields.required_positive("factor")? }),
        Some("llama3") => llama3(fields),
        Some(other) => {
            Err(fields.refuse(name, format!("{other:?} is not supported; supported are default, linear, llama3")))
        }
    }
}

fn llama3(fields: &Config) -> Result<RopeScaling, ModelError> {
    let low_freq_factor = fields.required_positive("low_freq_factor")?;
    let high_freq_factor = fields.required_positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let problem = format!("expected more than low_freq_factor {low_freq_factor}, got {high_freq_factor}");
        return Err(fields.refuse("high_freq_factor", problem));
    }
    Ok(RopeScaling::Llama3 {
        factor: fields.required_positive("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_max_position: fields.required_positive("original_max_position_embeddings")?,
    })
}

fn refuse_partial_rotation(fields: &Config) -> Result<(), ModelError> {
    match fields.positive("partial_rotary_factor")? {
        Some(factor) if factor != 1.0 => {
            Err(fields.refuse("partial_rotary_factor", format!("{factor} is not supported; only 1 is")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(json: &str) -> Result<RopeSpec, String> {
        read(&Config::parse("config.json", json.as_bytes()).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0,
        };
        let table = [
            ("{}", 10_000.0, RopeScaling::None),
            (r#"{"rope_theta": 5e5, "rope_scaling": null}"#, 5e5, RopeScaling::None),
            (r#"{"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}"#, 5e5, RopeScaling::None),
            (r#"{"rope_theta": 7, "rope_parameters": {"rope_type": "default"}}"#, 7.0, RopeScaling::None),
            (r#"{"rope_scaling": {"type": "linear", "factor": 2}}"#, 10_000.0, RopeScaling::Linear { factor: 2.0 }),
            (
                r#"{"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}"#,
                10_000.0,
                RopeScaling::Linear { factor: 2.0 },
            ),
            (
                r#"{"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}"#,
                5e5,
                llama3.clone(),
            ),
            (
                r#"{"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}"#,
                5e5,
                llama3,
            ),
        ];
        for (json, theta, scaling) in table {
            assert_eq!(rope(json).unwrap(), RopeSpec { theta, scaling }, "{json}");
        }
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let table = [
            (
                r#"{"rope_scaling": {"type": "dynamic", "factor": 2}}"#,
                "rope_scaling.type: \"dynamic\" is not supported",
            ),
            (r#"{"rope_scaling": {"rope_type": "yarn"}}"#, "rope_scaling.rope_type: \"yarn\" is not supported"),
            (r#"{"rope_parameters": {"rope_type": "longrope"}}"#, "rope_parameters.rope_type: \"longrope\" is not"),
            (r#"{"rope_scaling": {"type": "linear"}}"#, "rope_scaling.factor: expected a positive number, got nothing"),
            (r#"{"rope_scaling": {"factor": 2}}"#, "rope_scaling.rope_type: expected a string, got nothing"),
            (r#"{"rope_scaling": {"type": "linear", "factor": 0}}"#, "rope_scaling.factor: expected a positive number"),
            (r#"{"rope_scaling": "linear"}"#, "rope_scaling: expected an object"),
            (r#"{"rope_theta": -1}"#, "rope_theta: expected a positive number, got -1"),
            (r#"{"partial_rotary_factor": 0.5}"#, "partial_rotary_factor: 0.5 is not supported"),
            (
                r#"{"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 4}}"#,
                "rope_scaling.high_freq_factor: expected more than low_freq_factor 4, got 4",
            ),
        ];
        for (json, message) in table {
            let error = rope(json).unwrap_err();
            assert!(error.starts_with(&format!("config.json: {message}")), "{json}: {error}");
        }
    }
}
