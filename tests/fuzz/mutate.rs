//! Changes samples at random: bits, bytes, words, numbers, order, length, depth. Knows no format
//! but the words it is given.

use fastrand::Rng;

/// Longest input but for the few that are blown up.
const BYTES_MAX: usize = 4 * 1024;
/// Longest of those.
const BLOWN_UP_BYTES_MAX: usize = 64 * 1024;
/// One input of so many is blown up.
const BLOWN_UP_EVERY: usize = 200;
const CHANGES_MAX: usize = 6;

/// Numbers at which something ends.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "1e308",
    "1e999",
    "0.1",
    "-0",
    "00",
];

/// What opens a level of something, in many formats, and what closes it.
const LEVELS: &[(&str, &str)] = &[
    ("[", "]"),
    ("{\"a\":", "}"),
    ("{", "}"),
    ("<a>", "</a>"),
    ("(", ")"),
    ("- ", ""),
    ("a: {", "}"),
    ("&a [*a, ", "]"),
    ("\"", "\""),
    ("/", ""),
    ("%25", ""),
];

/// Bytes that are no text, or not much of one.
const ODD: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\r\n",
    b"\\u0000",
    b"\\ud800",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x92\xa9",
    b"%00",
    b"%zz",
    b"&#0;",
    b"&#x110000;",
];

/// Makes inputs, the same ones from the same seed.
pub struct Mutator {
    rng: Rng,
    words: &'static [&'static str],
    made: usize,
}

impl Mutator {
    /// `words` are those that the format has.
    pub fn new(seed: u64, words: &'static [&'static str]) -> Self {
        Self { rng: Rng::with_seed(seed), words, made: 0 }
    }

    /// Makes the next input from one of the samples.
    pub fn make(&mut self, samples: &[Vec<u8>], out: &mut Vec<u8>) {
        self.made += 1;
        out.clear();
        out.extend_from_slice(&samples[self.rng.usize(..samples.len())]);
        let blown_up = self.made.is_multiple_of(BLOWN_UP_EVERY);
        let bytes_max = if blown_up { BLOWN_UP_BYTES_MAX } else { BYTES_MAX };
        for _ in 0..self.rng.usize(1..=CHANGES_MAX) {
            let other = &samples[self.rng.usize(..samples.len())];
            self.change(out, other);
            out.truncate(bytes_max);
        }
        if blown_up {
            self.blow_up(out, bytes_max);
        }
    }

    fn change(&mut self, out: &mut Vec<u8>, other: &[u8]) {
        match self.rng.u8(..13) {
            0 => self.each_of_a_few(out, |rng, byte| *byte ^= 1 << rng.u8(..8)),
            1 => self.each_of_a_few(out, |rng, byte| *byte = rng.u8(..)),
            2 => {
                let range = self.range(out.len());
                out.drain(range);
            }
            3 => {
                let range = self.range(out.len());
                let times = 1 << self.rng.usize(..8);
                let part = out[range.clone()].repeat(times.min(BYTES_MAX / range.len().max(1)));
                self.insert(out, &part);
            }
            4 => out.truncate(self.rng.usize(..=out.len())),
            5 => {
                let part = other[self.range(other.len())].to_vec();
                self.replace(out, &part);
            }
            6 => {
                let (head, tail) = (self.rng.usize(..=out.len()), self.rng.usize(..=other.len()));
                out.truncate(head);
                out.extend_from_slice(&other[tail..]);
            }
            7 => self.number(out),
            8 => {
                let (open, close) = LEVELS[self.rng.usize(..LEVELS.len())];
                let depth = 1 << self.rng.usize(..11);
                let closed = if self.rng.bool() { depth } else { 0 };
                let range = self.range(out.len());
                let inner = out[range.clone()].to_vec();
                let (before, after) = (open.repeat(depth), close.repeat(closed));
                out.splice(range, [before.as_bytes(), &inner, after.as_bytes()].concat());
            }
            9 => {
                let part = ODD[self.rng.usize(..ODD.len())];
                self.insert(out, part);
            }
            10 => self.lines(out),
            _ if self.words.is_empty() => {}
            11 => {
                let word = self.words[self.rng.usize(..self.words.len())];
                self.insert(out, word.as_bytes());
            }
            _ => {
                let word = self.words[self.rng.usize(..self.words.len())];
                self.replace(out, word.as_bytes());
            }
        }
    }

    fn each_of_a_few(&mut self, out: &mut [u8], change: fn(&mut Rng, &mut u8)) {
        for _ in 0..self.rng.usize(1..=4) {
            if out.is_empty() {
                return;
            }
            let at = self.rng.usize(..out.len());
            change(&mut self.rng, &mut out[at]);
        }
    }

    /// A part, most often a short one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.rng.usize(..=length);
        let most = (length - start).min(1 << self.rng.usize(..10));
        start..start + self.rng.usize(..=most)
    }

    fn insert(&mut self, out: &mut Vec<u8>, part: &[u8]) {
        let at = self.rng.usize(..=out.len());
        out.splice(at..at, part.iter().copied());
    }

    fn replace(&mut self, out: &mut Vec<u8>, part: &[u8]) {
        let range = self.range(out.len());
        out.splice(range, part.iter().copied());
    }

    /// Another number in the place of one.
    fn number(&mut self, out: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..out.len())
            .filter(|&at| out[at].is_ascii_digit() && (at == 0 || !out[at - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let start = starts[self.rng.usize(..starts.len())];
        let length = out[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = match self.rng.u8(..4) {
            0 => self.rng.u64(..).to_string(),
            1 => self.rng.u8(..).to_string(),
            _ => NUMBERS[self.rng.usize(..NUMBERS.len())].to_owned(),
        };
        out.splice(start..start + length, number.into_bytes());
    }

    /// A line that stands elsewhere, twice, or not at all.
    fn lines(&mut self, out: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> =
            out.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (from, to) = (self.rng.usize(..lines.len()), self.rng.usize(..lines.len()));
        match self.rng.u8(..3) {
            0 => lines.swap(from, to),
            1 => lines.insert(to, lines[from].clone()),
            _ => drop(lines.remove(from)),
        }
        *out = lines.join(&b'\n');
    }

    /// A part of it over and over.
    fn blow_up(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        let range = self.range(out.len());
        let part = out[range.clone()].to_vec();
        if !part.is_empty() {
            let times = (bytes_max - out.len()) / part.len();
            out.splice(range.end..range.end, part.repeat(times));
        }
    }
}
