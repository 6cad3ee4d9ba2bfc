//! Numbers of tensor types in GGUF files.

use crate::Dtype;

pub(super) fn dtype(number: u32) -> Result<Dtype, String> {
    let found = Dtype::ALL.into_iter().find(|dtype| number_of(*dtype) == number);
    found.ok_or_else(|| {
        let supported = Dtype::ALL.map(Dtype::name).join(", ");
        match name_of_unsupported(number) {
            Some(name) => format!("the type {name} is not supported; supported are {supported}"),
            None => format!("the type number {number} is not known; supported are {supported}"),
        }
    })
}

fn number_of(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::Q4_0 => 2,
        Dtype::Q4_1 => 3,
        Dtype::Q5_0 => 6,
        Dtype::Q5_1 => 7,
        Dtype::Q8_0 => 8,
        Dtype::Q2K => 10,
        Dtype::Q3K => 11,
        Dtype::Q4K => 12,
        Dtype::Q5K => 13,
        Dtype::Q6K => 14,
        Dtype::Bf16 => 30,
    }
}

fn name_of_unsupported(number: u32) -> Option<&'static str> {
    Some(match number {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return None,
    })
}
