//! The cases of the Autobahn test suite for WebSockets, written from its published descriptions.
//! Each case runs against a server and a client: a raw socket sends its frames, and the node echoes
//! every message. Those with compression (12 and 13) are in `autobahn/compression.rs`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use estafette_net::{Event, Handle, Kind, Limits, Node};
use sha1::{Digest, Sha1};

#[cfg(feature = "deflate")]
#[path = "autobahn/compression.rs"]
mod compression;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A frame that the peer sends or expects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    last: bool,
    reserved: u8,
    opcode: u8,
    payload: Vec<u8>,
}

fn frame(opcode: u8, payload: impl AsRef<[u8]>) -> Frame {
    Frame { last: true, reserved: 0, opcode, payload: payload.as_ref().to_vec() }
}

/// A frame that is not the last of its message.
fn part(opcode: u8, payload: impl AsRef<[u8]>) -> Frame {
    Frame { last: false, ..frame(opcode, payload) }
}

fn close(code: u16, reason: impl AsRef<[u8]>) -> Frame {
    frame(CLOSE, [&code.to_be_bytes()[..], reason.as_ref()].concat())
}

impl Frame {
    fn bytes(&self, masked: bool) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.last) << 7 | self.reserved << 4 | self.opcode];
        let mask = if masked { 0x80 } else { 0 };
        match self.payload.len() {
            len @ 0..=125 => bytes.push(mask | len as u8),
            len @ 126..=0xffff => {
                bytes.push(mask | 126);
                bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                bytes.push(mask | 127);
                bytes.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        let key = [0x12, 0xab, 0, 0xff];
        if masked {
            bytes.extend_from_slice(&key);
            bytes.extend(self.payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        } else {
            bytes.extend_from_slice(&self.payload);
        }
        bytes
    }

    /// Parses all frames of a stream.
    fn parse(mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let [first, second, rest @ ..] = bytes {
            let (len, rest) = match second & 0x7f {
                126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
                127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
                len => (usize::from(len), rest),
            };
            let (key, rest) = if second & 0x80 != 0 { rest.split_at(4) } else { (&[0; 4][..], rest) };
            let payload = rest[..len].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            frames.push(Frame { last: first & 0x80 != 0, reserved: first >> 4 & 7, opcode: first & 15, payload });
            bytes = &rest[len..];
        }
        assert!(bytes.is_empty(), "truncated frame: {bytes:?}");
        frames
    }
}

/// How the peer's frames are split into writes.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// One write for each frame.
    Frames,
    /// One write for all of them.
    Together,
    /// Writes of this many bytes.
    Every(usize),
}

struct Case {
    id: String,
    cut: Cut,
    sends: Vec<Frame>,
    expects: Vec<Frame>,
}

/// A case at whose end the peer closes and gets an answer.
fn good(id: impl Into<String>, cut: Cut, mut sends: Vec<Frame>, mut expects: Vec<Frame>) -> Case {
    sends.push(close(1000, ""));
    expects.push(close(1000, ""));
    Case { id: id.into(), cut, sends, expects }
}

/// A case that the node ends with this code, after it has replied to the valid frames.
fn bad(id: impl Into<String>, cut: Cut, sends: Vec<Frame>, mut expects: Vec<Frame>, code: u16) -> Case {
    expects.push(close(code, ""));
    Case { id: id.into(), cut, sends, expects }
}

/// A message in fragments of this length.
fn parts(opcode: u8, payload: &[u8], len: usize) -> Vec<Frame> {
    let count = payload.len().div_ceil(len).max(1);
    (0..count)
        .map(|i| Frame {
            last: i + 1 == count,
            reserved: 0,
            opcode: if i == 0 { opcode } else { CONTINUATION },
            payload: payload[i * len..payload.len().min((i + 1) * len)].to_vec(),
        })
        .collect()
}

const CUTS: [Cut; 3] = [Cut::Frames, Cut::Together, Cut::Every(1)];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Case 1: echoes of one frame.
fn framing() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, opcode, byte) in [(1, TEXT, b'*'), (2, BINARY, 0xfe)] {
        let sizes = [0, 125, 126, 127, 128, 65535, 65536].map(|size| (size, Cut::Frames));
        for (i, (size, cut)) in sizes.into_iter().chain([(65536, Cut::Every(997))]).enumerate() {
            let message = vec![frame(opcode, vec![byte; size])];
            cases.push(good(format!("1.{group}.{}", i + 1), cut, message.clone(), message));
        }
    }
    cases
}

/// Case 2: pings and pongs.
fn pings() -> Vec<Case> {
    let hello = "Hello, world!";
    let odd = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff";
    let long = vec![0xfe; 125];
    let pong = |payload: &[u8]| vec![frame(PONG, payload)];
    let ten = |opcode| (0..10).map(|i| frame(opcode, format!("payload-{i}"))).collect::<Vec<_>>();
    vec![
        good("2.1", Cut::Frames, vec![frame(PING, "")], pong(b"")),
        good("2.2", Cut::Frames, vec![frame(PING, hello)], pong(hello.as_bytes())),
        good("2.3", Cut::Frames, vec![frame(PING, odd)], pong(odd)),
        good("2.4", Cut::Frames, vec![frame(PING, &long)], pong(&long)),
        bad("2.5", Cut::Frames, vec![frame(PING, [0xfe; 126])], vec![], 1002),
        good("2.6", Cut::Every(1), vec![frame(PING, &long)], pong(&long)),
        good("2.7", Cut::Frames, vec![frame(PONG, "")], vec![]),
        good("2.8", Cut::Frames, vec![frame(PONG, "unsolicited pong payload")], vec![]),
        good("2.9", Cut::Frames, vec![frame(PONG, "unsolicited pong payload"), frame(PING, "ping")], pong(b"ping")),
        good("2.10", Cut::Frames, ten(PING), ten(PONG)),
        good("2.11", Cut::Every(1), ten(PING), ten(PONG)),
    ]
}

/// Cases 3 and 4: reserved bits and opcodes.
fn reserved() -> Vec<Case> {
    let hello = frame(TEXT, "Hello, world!");
    let with = |reserved, frame: Frame| Frame { reserved, ..frame };
    let after = |bad: Frame| vec![hello.clone(), bad, frame(PING, "")];
    let echo = vec![hello.clone()];
    let mut cases = vec![
        bad("3.1", Cut::Frames, vec![with(1, hello.clone())], vec![], 1002),
        bad("3.2", Cut::Frames, after(with(2, hello.clone())), echo.clone(), 1002),
        bad("3.3", Cut::Together, after(with(3, hello.clone())), echo.clone(), 1002),
        bad("3.4", Cut::Every(1), after(with(4, hello.clone())), echo.clone(), 1002),
        bad("3.5", Cut::Frames, vec![with(5, frame(BINARY, [0, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0, 0xff]))], vec![], 1002),
        bad("3.6", Cut::Frames, vec![with(6, frame(PING, "Hello, world!"))], vec![], 1002),
        bad("3.7", Cut::Frames, vec![with(7, close(1000, ""))], vec![], 1002),
    ];
    for (group, first) in [(1, 3), (2, 11)] {
        let id = |i: u8| format!("4.{group}.{i}");
        cases.extend([
            bad(id(1), Cut::Frames, vec![frame(first, "")], vec![], 1002),
            bad(id(2), Cut::Frames, vec![frame(first + 1, "reserved opcode payload")], vec![], 1002),
            bad(id(3), Cut::Frames, after(frame(first + 2, "")), echo.clone(), 1002),
            bad(id(4), Cut::Together, after(frame(first + 3, "reserved opcode payload")), echo.clone(), 1002),
            bad(id(5), Cut::Every(1), after(frame(first + 4, "reserved opcode payload")), echo.clone(), 1002),
        ]);
    }
    cases
}

/// Case 5: fragmented messages.
fn fragments() -> Vec<Case> {
    let two = || vec![part(TEXT, "fragment1"), frame(CONTINUATION, "fragment2")];
    let whole = || frame(TEXT, "fragment1fragment2");
    let mut cases = vec![
        bad("5.1", Cut::Frames, vec![part(PING, "fragment1"), frame(CONTINUATION, "fragment2")], vec![], 1002),
        bad("5.2", Cut::Frames, vec![part(PONG, "fragment1"), frame(CONTINUATION, "fragment2")], vec![], 1002),
    ];
    for (i, cut) in CUTS.into_iter().enumerate() {
        cases.push(good(format!("5.{}", 3 + i), cut, two(), vec![whole()]));
    }
    for (i, cut) in CUTS.into_iter().enumerate() {
        let sends = vec![part(TEXT, "fragment1"), frame(PING, "ping payload"), frame(CONTINUATION, "fragment2")];
        cases.push(good(format!("5.{}", 6 + i), cut, sends, vec![frame(PONG, "ping payload"), whole()]));
    }
    for (first, last) in [(9, true), (12, false)] {
        for (i, cut) in CUTS.into_iter().enumerate() {
            let lone = Frame { last, ..frame(CONTINUATION, "non-continuation payload") };
            cases.push(bad(format!("5.{}", first + i), cut, vec![lone, frame(TEXT, "Hello, world!")], vec![], 1002));
        }
    }
    let lone = |last| Frame { last, ..frame(CONTINUATION, "non-continuation payload") };
    let sends = [two(), vec![lone(false), frame(TEXT, "Hello, world!")]].concat();
    cases.push(bad("5.15", Cut::Frames, sends, vec![whole()], 1002));
    for (id, last) in [("5.16", false), ("5.17", true)] {
        let once = [vec![lone(last)], two()].concat();
        cases.push(bad(id, Cut::Frames, [once.clone(), once].concat(), vec![], 1002));
    }
    cases.push(bad("5.18", Cut::Frames, vec![part(TEXT, "fragment1"), frame(TEXT, "fragment2")], vec![], 1002));
    for (id, cut) in [("5.19", Cut::Frames), ("5.20", Cut::Together)] {
        let sends = vec![
            part(TEXT, "fragment1"),
            part(CONTINUATION, "fragment2"),
            frame(PING, "pongme 1!"),
            part(CONTINUATION, "fragment3"),
            part(CONTINUATION, "fragment4"),
            frame(PING, "pongme 2!"),
            frame(CONTINUATION, "fragment5"),
        ];
        let echo = frame(TEXT, "fragment1fragment2fragment3fragment4fragment5");
        cases.push(good(id, cut, sends, vec![frame(PONG, "pongme 1!"), frame(PONG, "pongme 2!"), echo]));
    }
    cases
}

/// Case 6: text.
#[expect(clippy::too_many_lines, reason = "a table of the suite's groups of cases")]
fn texts() -> Vec<Case> {
    let echoed = |id: &str, sends: Vec<Frame>| {
        let whole: Vec<u8> = sends.iter().flat_map(|frame| frame.payload.clone()).collect();
        good(id, Cut::Frames, sends, vec![frame(TEXT, whole)])
    };
    let text = "Hello-µ@ßöäüàá-UTF-8!!".as_bytes();
    // The accented letter is U+1F79, with three bytes, as in the suite.
    let kosme = "κ\u{1f79}σμε".as_bytes();
    let surrogate = [kosme, b"\xed\xa0\x80edited"].concat();
    let mut cases = vec![
        echoed("6.1.1", vec![frame(TEXT, "")]),
        echoed("6.1.2", vec![part(TEXT, ""), part(CONTINUATION, ""), frame(CONTINUATION, "")]),
        echoed("6.1.3", vec![part(TEXT, ""), part(CONTINUATION, "middle frame payload"), frame(CONTINUATION, "")]),
        echoed("6.2.1", vec![frame(TEXT, text)]),
        echoed("6.2.2", vec![part(TEXT, "Hello-µ@ßöä"), frame(CONTINUATION, "üàá-UTF-8!!")]),
        echoed("6.2.3", parts(TEXT, text, 1)),
        echoed("6.2.4", parts(TEXT, kosme, 1)),
        bad("6.3.1", Cut::Frames, vec![frame(TEXT, &surrogate)], vec![], 1007),
        bad("6.3.2", Cut::Frames, parts(TEXT, &surrogate, 1), vec![], 1007),
    ];
    // The second fragment cannot continue or start a character, so it is rejected before the third.
    let high = b"\xf4\x90\x80\x80";
    for (id, cut, at) in
        [("6.4.1", Cut::Frames, 0), ("6.4.2", Cut::Frames, 1), ("6.4.3", Cut::Every(1), 0), ("6.4.4", Cut::Every(1), 1)]
    {
        let first = [kosme, &high[..at]].concat();
        let sends = vec![part(TEXT, first), part(CONTINUATION, &high[at..]), frame(CONTINUATION, "edited")];
        cases.push(bad(id, cut, sends, vec![], 1007));
    }
    let all = |from: u8, to: u8, between: &str| {
        (from..=to).flat_map(|byte| [&[byte][..], between.as_bytes()].concat()).collect::<Vec<u8>>()
    };
    let missing: Vec<Vec<u8>> =
        ["c0", "e080", "f08080", "f8808080", "fc80808080", "df", "efbf", "f7bfbf", "fbbfbfbf", "fdbfbfbfbf"]
            .map(hex)
            .into();
    let surrogates = ["eda080", "edadbf", "edae80", "edafbf"];
    let groups: Vec<(u8, Vec<Vec<u8>>)> = vec![
        (5, ["hello$world", "hello¢world", "hello€world", "hello𤭢world", "κ\u{1f79}σμε"].map(Vec::from).into()),
        (6, (1..=kosme.len()).map(|len| kosme[..len].to_vec()).collect()),
        (7, ["00", "c280", "e0a080", "f0908080"].map(hex).into()),
        (8, ["f888808080", "fc8480808080"].map(hex).into()),
        (9, ["7f", "dfbf", "efbfbf", "f48fbfbf"].map(hex).into()),
        (10, ["f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"].map(hex).into()),
        (11, ["ed9fbf", "ee8080", "efbfbd", "f48fbfbf", "f4908080"].map(hex).into()),
        (
            12,
            (1..=7)
                .map(|len| match len {
                    1 => hex("80"),
                    2 => hex("bf"),
                    len => hex("80bf80bf80bf")[..len - 1].to_vec(),
                })
                .chain([all(0x80, 0xbf, "")])
                .collect(),
        ),
        (
            13,
            [(0xc0, 0xdf), (0xe0, 0xef), (0xf0, 0xf7), (0xf8, 0xfb), (0xfc, 0xfd)]
                .map(|(from, to)| all(from, to, " "))
                .into(),
        ),
        (14, missing.clone()),
        (15, vec![missing.concat()]),
        (16, ["fe", "ff", "fefeffff"].map(hex).into()),
        (17, ["c0af", "e080af", "f08080af", "f8808080af", "fc80808080af"].map(hex).into()),
        (18, ["c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"].map(hex).into()),
        (19, ["c080", "e08080", "f0808080", "f880808080", "fc8080808080"].map(hex).into()),
        (20, ["eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf"].map(hex).into()),
        (21, surrogates.iter().flat_map(|high| ["edb080", "edbfbf"].map(|low| hex(&format!("{high}{low}")))).collect()),
        (
            22,
            (0..=16_u32)
                .flat_map(|plane| [0xfffe, 0xffff].map(|low| plane << 16 | low))
                .map(|code| char::from_u32(code).unwrap().to_string().into_bytes())
                .collect(),
        ),
        (23, (0xfff9..=0xffff_u32).map(|code| char::from_u32(code).unwrap().to_string().into_bytes()).collect()),
    ];
    for (group, members) in groups {
        for (i, bytes) in members.into_iter().enumerate() {
            let id = format!("6.{group}.{}", i + 1);
            let sends = vec![frame(TEXT, &bytes)];
            cases.push(match std::str::from_utf8(&bytes) {
                Ok(_) => good(id, Cut::Frames, sends.clone(), sends),
                Err(_) => bad(id, Cut::Frames, sends, vec![], 1007),
            });
        }
    }
    cases
}

/// Case 7: closing.
fn closing() -> Vec<Case> {
    let hello = frame(TEXT, "Hello World!");
    let end = close(1000, "");
    let ended =
        |id: &str, sends: Vec<Frame>, expects: Vec<Frame>| Case { id: id.to_owned(), cut: Cut::Frames, sends, expects };
    let long = frame(TEXT, vec![b'*'; 256 << 10]);
    let mut cases = vec![
        ended("7.1.1", vec![hello.clone(), end.clone()], vec![hello.clone(), end.clone()]),
        ended("7.1.2", vec![end.clone(), end.clone()], vec![end.clone()]),
        ended("7.1.3", vec![end.clone(), frame(PING, "")], vec![end.clone()]),
        ended("7.1.4", vec![end.clone(), hello.clone()], vec![end.clone()]),
        ended("7.1.5", vec![part(TEXT, "fragment1"), end.clone(), frame(CONTINUATION, "fragment2")], vec![end.clone()]),
        ended(
            "7.1.6",
            vec![long.clone(), hello.clone(), end.clone(), frame(PING, "")],
            vec![long, hello.clone(), end.clone()],
        ),
        ended("7.3.1", vec![frame(CLOSE, "")], vec![frame(CLOSE, "")]),
        bad("7.3.2", Cut::Frames, vec![frame(CLOSE, "a")], vec![], 1002),
        ended("7.3.3", vec![end.clone()], vec![end.clone()]),
        ended("7.3.4", vec![close(1000, "Hello World!")], vec![end.clone()]),
        ended("7.3.5", vec![close(1000, [b'*'; 123])], vec![end]),
        bad("7.3.6", Cut::Frames, vec![close(1000, [b'*'; 124])], vec![], 1002),
        bad(
            "7.5.1",
            Cut::Frames,
            vec![close(1000, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited")],
            vec![],
            1007,
        ),
    ];
    for (i, code) in
        [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999].into_iter().enumerate()
    {
        cases.push(ended(&format!("7.7.{}", i + 1), vec![close(code, "")], vec![close(code, "")]));
    }
    for (i, code) in [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999].into_iter().enumerate() {
        cases.push(bad(format!("7.9.{}", i + 1), Cut::Frames, vec![close(code, "")], vec![], 1002));
    }
    for (i, code) in [5000, 65535].into_iter().enumerate() {
        cases.push(bad(format!("7.13.{}", i + 1), Cut::Frames, vec![close(code, "")], vec![], 1002));
    }
    cases
}

/// Cases 9 and 10: long messages, many fragments, many messages.
fn bulk() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, opcode) in [TEXT, BINARY].into_iter().enumerate() {
        let byte = if opcode == TEXT { b'*' } else { 0xfe };
        let message = |len: usize| vec![frame(opcode, vec![byte; len])];
        for (j, len) in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20].into_iter().enumerate() {
            cases.push(good(format!("9.{}.{}", 1 + i, j + 1), Cut::Frames, message(len), message(len)));
        }
        for j in 0..9 {
            let sends = parts(opcode, &vec![byte; 4 << 20], 64 << (2 * j).min(16));
            cases.push(good(format!("9.{}.{}", 3 + i, j + 1), Cut::Together, sends, message(4 << 20)));
        }
        for j in 0..6 {
            cases.push(good(format!("9.{}.{}", 5 + i, j + 1), Cut::Every(64 << j), message(1 << 20), message(1 << 20)));
        }
        for (j, len) in [0, 16, 64, 256, 1024, 4096].into_iter().enumerate() {
            let messages = vec![message(len).remove(0); 1000];
            cases.push(good(format!("9.{}.{}", 7 + i, j + 1), Cut::Frames, messages.clone(), messages));
        }
    }
    let long = vec![b'*'; 65536];
    cases.push(good("10.1.1", Cut::Frames, parts(TEXT, &long, 1300), vec![frame(TEXT, &long)]));
    cases
}

fn all() -> Vec<Case> {
    [framing(), pings(), reserved(), fragments(), texts(), closing(), bulk()].into_iter().flatten().collect()
}

/// Echoes every message until the node is stopped.
fn echo(mut node: Node<()>) {
    let handle = node.handle();
    node.run(|event| {
        if let Event::Message(from, message) = event {
            let outcome = match message.kind() {
                Kind::Text => handle.send_text(from, std::str::from_utf8(&message).expect("text is UTF-8")),
                Kind::Binary => handle.send(from, &message),
            };
            assert!(outcome.is_accepted(), "{outcome:?}");
        }
    })
    .unwrap();
}

/// Reads an HTTP head, up to the empty line.
fn head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A server's answer to a request, with further headers.
fn handshake_answer(request: &str, headers: &str) -> String {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{headers}\r\n"
    )
}

/// Runs a case on a stream whose handshake is over.
fn play(case: &Case, mut stream: TcpStream, masked: bool) {
    let mut reading = stream.try_clone().unwrap();
    reading.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        reading.read_to_end(&mut answer).map(|_| answer)
    });
    let frames: Vec<Vec<u8>> = case.sends.iter().map(|frame| frame.bytes(masked)).collect();
    let all = frames.concat();
    let pieces: Vec<&[u8]> = match case.cut {
        Cut::Frames => frames.iter().map(|frame| &frame[..]).collect(),
        Cut::Together => vec![&all],
        Cut::Every(len) => all.chunks(len).collect(),
    };
    for piece in pieces {
        stream.write_all(piece).unwrap();
    }
    let answer = reader.join().unwrap().unwrap_or_else(|error| panic!("case {}: {error}", case.id));
    let answer = Frame::parse(&answer);
    if answer != case.expects {
        let short = |frames: &[Frame]| {
            frames
                .iter()
                .map(|frame| (frame.opcode, frame.payload.len(), frame.payload.first_chunk::<2>().copied()))
                .collect::<Vec<_>>()
        };
        panic!("case {}: {:?} was answered, and {:?} expected", case.id, short(&answer), short(&case.expects));
    }
}

/// An echoing node in a thread of its own.
struct Echoing {
    handle: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echoing {
    fn new() -> Echoing {
        let mut limits = Limits::default();
        // A queue so large that a peer that reads late loses no echo.
        limits.queue = 64 << 20;
        let node = Node::with_limits(limits).unwrap();
        Echoing { handle: node.handle(), thread: Some(thread::spawn(move || echo(node))) }
    }
}

impl Drop for Echoing {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

#[test]
fn the_number_of_cases_is_that_of_the_suite() {
    let cases = all();
    assert_eq!(cases.len(), 301);
    let mut ids: Vec<_> = cases.iter().map(|case| &case.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 301);
}

#[test]
fn a_server_passes_every_case() {
    let echoing = Echoing::new();
    let listener = echoing.handle.listen("ws://127.0.0.1:0").unwrap();
    let port = echoing.handle.local_address(listener).unwrap().port().unwrap();
    for case in all() {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .write_all(
                b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .unwrap();
        assert!(head(&mut stream).starts_with("HTTP/1.1 101 "));
        play(&case, stream, true);
    }
}

#[test]
fn a_client_passes_every_case() {
    let echoing = Echoing::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("ws://{}/case", listener.local_addr().unwrap());
    for case in all() {
        echoing.handle.connect(url.as_str()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let request = head(&mut stream);
        assert!(request.starts_with("GET /case HTTP/1.1\r\n"));
        stream.write_all(handshake_answer(&request, "").as_bytes()).unwrap();
        play(&case, stream, false);
    }
}
