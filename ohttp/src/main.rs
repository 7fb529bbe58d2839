//! Opens and seals Oblivious HTTP (RFC 9458) for shoal-door, on the crates ohttp and bhttp.
//!
//! The door speaks HTTP with the relay and passes what came, unopened, over a Unix socket; this program
//! has the gateway's keys and speaks with nobody else. One connection for each request, numbers little
//! endian:
//!
//!   door                                        this program
//!     u32 length, an encapsulated request  -->
//!                                          <--  u8 what, and then
//!       0  nothing: what was sealed is no request
//!       1  u32 length, an encapsulated response: a request for something else than the door has
//!       2  u16 length, the value of authorization; u32 length, the body of POST /v1/call
//!       3  nothing: sealed for another key; the client is to get the keys again
//!     after 2:
//!     u16 status, u16 length, the value of www-authenticate, u32 length, body  -->
//!                                          <--  u32 length, the encapsulated response
//!
//! With a length of 0 the door asks for the keys, which come as after 1 (application/ohttp-keys).

use bhttp::{Message, Mode, StatusCode};
use ohttp::hpke::{Aead, Kdf, Kem};
use ohttp::{KeyConfig, Server, SymmetricSuite};
use std::fs::{self, OpenOptions};
use std::io::{self, Cursor, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
Opens and seals Oblivious HTTP (RFC 9458) for shoal-door, which takes requests of relays and
passes them on unopened. Keys are in files, each with the key's number and 64 hexadecimal
digits. The first key is shown to clients, the others open what clients with older keys send.

  shoal-ohttp --make-key FILE --id N            makes a key, for this user alone; N is 0 to 255
  shoal-ohttp --socket PATH --key FILE ...      serves the door at this socket
  shoal-ohttp --help | --version

Examples:
  shoal-ohttp --make-key ohttp-1.key --id 1
  shoal-ohttp --socket /run/shoal-ohttp/socket --key ohttp-2.key --key ohttp-1.key

Exit codes: 0 done, 1 failed, 2 wrong usage.
";

/// Of a request, and of a response: a frame of at most 4 MiB, its header, and what is around it.
const MAX_BYTES: usize = (4 << 20) + (16 << 10);
const MAX_CONNECTIONS: usize = 1024;
/// The door answers within two minutes.
const PATIENCE: Duration = Duration::from_secs(150);

fn other(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

// --- keys ---

fn make_key(path: &str, id: u8) -> io::Result<()> {
    let mut secret = [0u8; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{id} {digits}\n").as_bytes())?;
    file.sync_all()
}

fn read_key(path: &str) -> io::Result<Server> {
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        return Err(other("others may read it; run: chmod 600"));
    }
    let text = fs::read_to_string(path)?;
    let malformed = || other("expected a number and 64 hexadecimal digits");
    let (id, digits) = text.trim_end().split_once(' ').ok_or_else(malformed)?;
    let id: u8 = id.parse().map_err(|_| malformed())?;
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(malformed());
    }
    let mut secret = [0u8; 32];
    for (i, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| malformed())?;
    }
    let suites = vec![
        SymmetricSuite::new(Kdf::HkdfSha256, Aead::Aes128Gcm),
        SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305),
    ];
    let config = KeyConfig::derive(id, Kem::X25519Sha256, suites, &secret).map_err(other)?;
    Server::new(config).map_err(other)
}

// --- the door ---

fn read_number<const N: usize>(from: &mut impl Read) -> io::Result<usize> {
    let mut bytes = [0u8; 8];
    from.read_exact(&mut bytes[..N])?;
    usize::try_from(u64::from_le_bytes(bytes)).map_err(other)
}

fn read_blob<const N: usize>(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = read_number::<N>(from)?;
    if length > MAX_BYTES {
        return Err(other("too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn put_blob<const N: usize>(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as u64).to_le_bytes()[..N]);
    to.extend_from_slice(bytes);
}

fn encode(response: &Message) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    response.write_bhttp(Mode::KnownLength, &mut bytes).map_err(other)?;
    Ok(bytes)
}

fn response_of(status: usize) -> io::Result<Message> {
    let status = u16::try_from(status).map_err(other)?;
    Ok(Message::response(StatusCode::try_from(status).map_err(other)?))
}

fn serve(stream: &mut UnixStream, servers: &[Server]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let sealed = read_blob::<4>(stream)?;
    if sealed.is_empty() {
        let shown = KeyConfig::encode_list(&[servers[0].config()]).map_err(other)?;
        let mut answer = vec![1];
        put_blob::<4>(&mut answer, &shown);
        return stream.write_all(&answer);
    }
    // Each says of a request with another key's number that it is not its own. What one does not open under its
    // own number was sealed for a key that had this number before, or altered on its way.
    let Some((opened, sealer)) = servers.iter().find_map(|server| server.decapsulate(&sealed).ok()) else {
        return stream.write_all(&[3]);
    };
    let Ok(request) = Message::read_bhttp(&mut Cursor::new(&opened[..])) else {
        return stream.write_all(&[0]);
    };
    let control = request.control();
    if control.method() != Some(b"POST") || control.path() != Some(b"/v1/call") {
        let mut answer = vec![1];
        put_blob::<4>(&mut answer, &sealer.encapsulate(&encode(&response_of(404)?)?).map_err(other)?);
        return stream.write_all(&answer);
    }
    let authorization = request.header().get(b"authorization").unwrap_or_default();
    if authorization.len() > 1024 {
        return stream.write_all(&[0]);
    }
    let mut inner = vec![2];
    put_blob::<2>(&mut inner, authorization);
    put_blob::<4>(&mut inner, request.content());
    stream.write_all(&inner)?;

    let status = read_number::<2>(stream)?;
    let challenge = read_blob::<2>(stream)?;
    let body = read_blob::<4>(stream)?;
    let mut response = response_of(status)?;
    response.put_header("content-type", "application/octet-stream");
    if !challenge.is_empty() {
        response.put_header("www-authenticate", challenge);
    }
    response.write_content(body);
    let mut answer = Vec::new();
    put_blob::<4>(&mut answer, &sealer.encapsulate(&encode(&response)?).map_err(other)?);
    stream.write_all(&answer)
}

// --- the process ---

/// No core file, and no other process of the same user reads the memory, which holds the keys and what they open.
fn keep_memory_private() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both only read their arguments.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) == 0 && libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 };
    if done {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

struct Place(Arc<AtomicUsize>);
impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn listen(path: &str, servers: Vec<Server>) -> io::Result<()> {
    // What a run before left there.
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    eprintln!("shoal-ohttp: listens at {path}");
    let servers = Arc::new(servers);
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            std::thread::sleep(Duration::from_millis(100)); // most likely descriptors are short
            continue;
        };
        open.fetch_add(1, Ordering::Relaxed);
        let place = Place(open.clone());
        if open.load(Ordering::Relaxed) > MAX_CONNECTIONS {
            continue;
        }
        let servers = servers.clone();
        // What goes wrong ends this connection, and the door says so to the relay.
        let started = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
            let _place = place;
            let _ = serve(&mut stream, &servers);
        });
        if started.is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let (mut socket, mut make, mut id, mut keys) = (None, None, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    let usage = |what: &str| {
        eprintln!("shoal-ohttp: {what}; see shoal-ohttp --help");
        ExitCode::from(2)
    };
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "--help" => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            "--version" => {
                println!("shoal-ohttp {}", env!("CARGO_PKG_VERSION"));
                return ExitCode::SUCCESS;
            }
            _ => {}
        }
        let Some(value) = arguments.next() else {
            return usage(&format!("{option} needs a value"));
        };
        match option.as_str() {
            "--socket" => socket = Some(value),
            "--key" => keys.push(value),
            "--make-key" => make = Some(value),
            "--id" => match value.parse::<u8>() {
                Ok(number) => id = Some(number),
                Err(_) => return usage("--id takes 0 to 255"),
            },
            _ => return usage(&format!("unknown option {option}")),
        }
    }
    // Before any key is read or made.
    if let Err(error) = keep_memory_private() {
        eprintln!("shoal-ohttp: cannot keep its memory from others: {error}");
        return ExitCode::FAILURE;
    }
    ohttp::init();
    let done = match (make, id, socket) {
        (Some(path), Some(id), None) if keys.is_empty() => make_key(&path, id).map_err(|error| format!("{path}: {error}")),
        (None, None, Some(path)) if !keys.is_empty() => keys
            .iter()
            .map(|key| read_key(key).map_err(|error| format!("{key}: {error}")))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|servers| listen(&path, servers).map_err(|error| format!("{path}: {error}"))),
        _ => return usage("expected --make-key FILE --id N, or --socket PATH and --key FILE"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal-ohttp: {error}");
            ExitCode::FAILURE
        }
    }
}
