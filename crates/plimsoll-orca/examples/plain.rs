//! A server without tower, tokio or hyper that reports its load.
//!
//! Run it with `cargo run -p plimsoll-orca --example plain -- 127.0.0.1:8080`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use plimsoll_orca::{OrcaFormat, OrcaHandle};

fn answer(mut socket: TcpStream, orca: &OrcaHandle) -> std::io::Result<()> {
    let request = orca.begin_request();
    let head = BufReader::new(socket.try_clone()?).lines();
    // The head of a request ends with an empty line.
    for line in head {
        if line?.is_empty() {
            break;
        }
    }
    write!(socket, "HTTP/1.1 200 OK\r\nconnection: close\r\n")?;
    if let Some((name, value)) = orca.header(OrcaFormat::Text) {
        write!(socket, "{name}: {}\r\n", value.to_str().unwrap_or_default())?;
    }
    write!(socket, "content-length: 6\r\n\r\nhello\n")?;
    drop(request); // call `request.fail()` instead if the response is an error
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1);
    let listener = TcpListener::bind(argument.as_deref().unwrap_or("127.0.0.1:8080"))?;
    let orca = plimsoll_orca::layer().handle();
    orca.set_named_metric("queue_depth", 3.0)?;
    orca.refresh(); // otherwise it is reported from the next tick on
    for socket in listener.incoming() {
        let (socket, orca) = (socket?, orca.clone());
        // Fails if the client disconnects.
        std::thread::spawn(move || answer(socket, &orca).is_ok());
    }
    Ok(())
}
