//! Every tensor type is dequantized to the same bits as by llama.cpp: see scripts/gguf_blocks.py.

use baton_model::Dtype;
use safetensors::SafeTensors;

#[test]
fn blocks_are_what_llama_cpp_reads() {
    let file = SafeTensors::deserialize(include_bytes!("dequantized.safetensors")).unwrap();
    for dtype in Dtype::ALL {
        let blocks = file.tensor(&format!("{dtype}.blocks")).unwrap();
        let expected = file.tensor(&format!("{dtype}.values")).unwrap();
        let mut values = vec![f32::NAN; expected.shape()[0]];
        assert_eq!(blocks.data().len(), dtype.bytes_of(values.len()), "{dtype}");
        dtype.read(blocks.data(), &mut values);
        for (index, (value, expected)) in values.iter().zip(expected.data().as_chunks::<4>().0).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            let equal = value.to_bits() == expected.to_bits();
            assert!(equal, "{dtype}, value {index}: {value} instead of {expected}");
        }
    }
}
