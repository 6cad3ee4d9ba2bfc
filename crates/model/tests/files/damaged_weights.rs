//! A truncated or changed safetensors file gives an error, never a panic and never bytes from outside of the file.

use crate::tiny::{Directory, safetensors, tensors};

fn header_end(file: &[u8]) -> usize {
    8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize
}

#[test]
fn every_truncation_is_refused() {
    let directory = Directory::whole("truncated");
    let whole = safetensors(&tensors());
    for length in (0..header_end(&whole) + 20).step_by(7).chain([whole.len() - 1]) {
        directory.write("model.safetensors", &whole[..length]);
        let error = directory.error();
        assert!(error.starts_with("model.safetensors: "), "{length} bytes: {error}");
    }
    directory.write("model.safetensors", [&whole[..], b"tail"].concat());
    assert!(directory.error().starts_with("model.safetensors: not a safetensors file"));
}

#[test]
fn absurd_header_lengths_are_refused() {
    let directory = Directory::whole("header_lengths");
    let mut file = safetensors(&tensors());
    let length = header_end(&file) as u64 - 8;
    for wrong in [0, 1, length - 1, length + 1, file.len() as u64, 100_000_000, 100_000_001, u64::MAX - 7, u64::MAX] {
        file[..8].copy_from_slice(&wrong.to_le_bytes());
        directory.write("model.safetensors", &file);
        let error = directory.error();
        assert!(error.starts_with("model.safetensors: not a safetensors file"), "{wrong}: {error}");
    }
}

#[test]
fn absurd_tensor_tables_are_refused() {
    let directory = Directory::whole("tensor_tables");
    let table = [
        "[]",
        "{}",
        r#"{"a": 1}"#,
        r#"{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 3]}}"#,
        r#"{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]}}"#,
        r#"{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]}}"#,
        r#"{"a": {"dtype": "BF16", "shape": [-1], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "BF17", "shape": [2], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "BF16", "shape": [9223372036854775807, 4], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "U8", "shape": [18446744073709551615], "data_offsets": [0, 18446744073709551615]}}"#,
        r#"{"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}, "b": {"dtype": "BF16", "shape": [2], "data_offsets": [2, 6]}}"#,
    ];
    for header in table {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([0; 4]);
        directory.write("model.safetensors", &file);
        let error = directory.error();
        assert!(error.starts_with("model.safetensors: "), "{header}: {error}");
    }
}

#[test]
fn a_flipped_header_byte_is_refused_or_harmless() {
    let directory = Directory::whole("flipped");
    let whole = safetensors(&tensors());
    let (mut refused, mut harmless) = (0, 0);
    for position in (0..header_end(&whole)).step_by(11) {
        let mut file = whole.clone();
        file[position] ^= 1 << (position % 7);
        directory.write("model.safetensors", &file);
        match directory.open() {
            Err(_) => refused += 1,
            Ok(model) => {
                // Two tensors of one shape may have been swapped, but each still has all its bytes, inside of the file.
                for part in model.spec.parts() {
                    let tensor = model.tensor(part).unwrap();
                    assert_eq!(tensor.bytes.len(), tensor.dtype.bytes_of(tensor.shape.iter().product()));
                }
                harmless += 1;
            }
        }
    }
    assert!(refused > harmless, "{refused} refused, {harmless} harmless");
}
