//! Text that tokenizers stumble over, by the seed.

pub(crate) struct Corpus {
    state: u64,
    /// Spelled out in the text now and then, whole and cut short.
    special: Vec<String>,
}

const WORDS: &[&str] = &[
    "the",
    "of",
    "Once",
    "upon",
    "a",
    "time",
    "there",
    "was",
    "little",
    "girl",
    "HTTP",
    "naïve",
    "café",
    "Straße",
    "größer",
    "привет",
    "мир",
    "Ελλάδα",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "สวัสดี",
    "日本語",
    "中文字符",
    "한국어",
    "ﬁligree",
    "ſtrange",
    "Ω",
    "K",
    "antidisestablishmentarianism",
    "l'été",
    "e\u{301}te\u{301}",
    "A\u{30A}ngstro\u{308}m",
    "가",
    "\u{1112}\u{1161}\u{11AB}",
];
const GLUE: &[&str] = &[
    " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", " \n ", "\t", "\t\t", "\u{A0}", "\u{3000}", "\u{2028}",
    "\u{85}", "", "", ".", ", ", "!", "?!", "...", "…", "-", "_", "/", "\\", "(", ")", "[]", "{\n", "}\n", "=>", "::",
    "//", "#", "@", "\"", "`", "'", "’", "“", "<", ">", "|", "<|", "|>", "+=", "\u{0}", "\u{7F}", "\u{FEFF}",
    "\u{200D}", "\u{FE0F}", "\u{301}", "\u{FFFD}",
];
const CONTRACTIONS: &[&str] = &[
    "'s", "'S", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'ſ", "'x", "''s",
    "'l", "'r",
];
const CODE: &[&str] = &[
    "fn main() {\n    println!(\"{}\", 1 + 2);\n}\n",
    "for (int i = 0; i < 10; i++) {\n\t\tx[i] += 0x1F;\n\t}\r\n",
    "def f(x):\n        return x**2  # square\n\n\n",
    "<div class=\"a\">&nbsp;</div>",
    "SELECT * FROM t WHERE id='42' AND n>=3.14e-10;",
    "https://example.org/a/b?c=d&e=%20f#g",
];
const EMOJI: &[&str] = &["😀", "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "☃", "♔", "①", "½", "Ⅷ", "٣", "५", "𝟘", "𐄇"];
const TRAPS: &[&str] =
    &["▁", "▁▁", "<0x0A>", "<0xE2>", "Ġ", "Ċ", "Ā", "<s>", "</s>", "<unk>", "[INST]", "\u{E000}", "\u{10FFFF}"];

impl Corpus {
    pub(crate) fn new(seed: u64, special: Vec<String>) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, special }
    }

    pub(crate) fn text(&mut self, pieces: u64) -> String {
        let mut text = String::new();
        for _ in 0..pieces {
            match self.below(32) {
                0..=11 => text.push_str(self.of(WORDS)),
                12..=20 => text.push_str(self.of(GLUE)),
                21 | 22 => text.push_str(self.of(CONTRACTIONS)),
                23 => text.push_str(self.of(CODE)),
                24 | 25 => text.push_str(self.of(EMOJI)),
                26 => text.push_str(self.of(TRAPS)),
                27 => text.push_str(&self.below(10_000_000).to_string()),
                28 => (0..self.below(40)).for_each(|_| text.push_str(self.of(&[" ", " ", "\n", "\t", "\u{2003}"]))),
                29 => (0..self.below(12)).for_each(|_| text.push(self.char())),
                30 => (0..self.below(60)).for_each(|_| text.push(char::from(b'a' + self.below(4) as u8))),
                _ => self.special(&mut text),
            }
        }
        text
    }

    fn special(&mut self, text: &mut String) {
        let len = self.special.len() as u64;
        if len == 0 {
            return;
        }
        let token = self.below(len) as usize;
        let cut = if self.below(3) == 0 { self.below(self.special[token].chars().count() as u64) } else { u64::MAX };
        text.extend(self.special[token].chars().take(cut as usize));
    }

    /// Any character, most of them from the crowded planes.
    fn char(&mut self) -> char {
        let bound = [0x80, 0x800, 0x3000, 0x1_0000, 0x2_0000, 0x11_0000][self.below(6) as usize];
        char::from_u32(self.below(bound) as u32).unwrap_or('\u{D7FF}')
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u64) as usize]
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % bound
    }
}
