//! Valid files with random changes: opening them must succeed or fail, without a panic and without much memory.

use baton_model::Model;

use crate::allocations;
use crate::tiny::{Directory, safetensors, tensors};
use crate::tiny_gguf::{self, Gguf};

const ROUNDS: u64 = 4000;
/// Many times the size of these files.
const MAX_ALLOCATION_BYTES: usize = 1 << 20;

#[test]
fn gguf_files() {
    let directory = Directory::new("fuzz_gguf");
    let gguf = Gguf::qwen2();
    let (whole, header) = (gguf.bytes(), gguf.header().len());
    fuzz(&whole, header, |bytes| {
        let model = tiny_gguf::open(&directory, bytes).ok()?;
        let _refused_or_not = model.files.tokenizer();
        Some(model)
    });
}

#[test]
fn safetensors_files() {
    let directory = Directory::whole("fuzz_safetensors");
    let whole = safetensors(&tensors());
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    fuzz(&whole, header, |bytes| {
        directory.write("model.safetensors", bytes);
        directory.open().ok()
    });
}

fn fuzz(whole: &[u8], header: usize, open: impl Fn(&[u8]) -> Option<Model>) {
    assert!(open(whole).is_some(), "the file is whole");
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let bytes = changed(whole, header, seed);
        allocations::forget();
        let model = open(&bytes);
        assert!(allocations::largest() <= MAX_ALLOCATION_BYTES, "seed {seed}: {} bytes", allocations::largest());
        let Some(model) = model else {
            refused += 1;
            continue;
        };
        opened += 1;
        for part in model.spec.parts() {
            // All bytes of a tensor are inside the file and can be read.
            let tensor = model.tensor(part).unwrap();
            assert_eq!(tensor.bytes.len(), tensor.dtype.bytes_of(tensor.shape.iter().product()), "seed {seed}");
            assert_eq!(tensor.vector().len(), tensor.shape.iter().product::<usize>(), "seed {seed}");
        }
    }
    assert!(opened > 0 && refused > opened, "{opened} opened, {refused} refused");
}

/// One to four changes, most of them in the header.
fn changed(whole: &[u8], header: usize, seed: u64) -> Vec<u8> {
    const EXTREMES: [u64; 8] = [0, 1, 0xFF, 1 << 31, u32::MAX as u64, 1 << 62, i64::MAX as u64, u64::MAX];
    let mut random = Random(seed);
    let mut bytes = whole.to_vec();
    for _ in 0..=random.below(4) {
        let end = if random.below(8) == 0 { bytes.len() } else { header.min(bytes.len()) };
        if end < 16 {
            break;
        }
        let at = random.below(end - 8);
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at..at + 8].copy_from_slice(&EXTREMES[random.below(EXTREMES.len())].to_le_bytes()),
            3 => bytes[at..at + 4].copy_from_slice(&(random.below(40) as u32).to_le_bytes()),
            4 => bytes.truncate(at),
            _ => {
                let from = random.below(end - 8);
                let piece = bytes[from..from + 8].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
