//! Base64 with padding (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let groups = bytes.chunks(3).flat_map(|chunk| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        (0..4).map(move |at| match at <= chunk.len() {
            true => char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        })
    });
    groups.collect()
}

/// `None` when a character, the padding or an unused bit is wrong: every text has one way to be written.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes()[..text.len() - padding].chunks(4) {
        let digits = group.iter().map(|&byte| digit(byte)).collect::<Option<Vec<u32>>>()?;
        let bits = digits.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - digits.len()));
        let [_, whole @ ..] = bits.to_be_bytes();
        let (used, unused) = whole.split_at(digits.len() - 1);
        if unused.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(used);
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_as_the_rfc_says() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
    }

    #[test]
    fn nothing_else_is_accepted() {
        for text in
            ["Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm9v\n", "Zm9v Zm9v", "Zm_v", "ZgÄ="]
        {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
