//! The address at which an engine receives KV.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use baton_engine::Fabric;
use baton_protocol::Secret;

use crate::failure::Failure;
use crate::options::{EngineArgs, FabricMode};

pub(crate) fn open(args: &EngineArgs, secret: &Secret, limit_bytes_per_s: Option<u64>) -> Result<Fabric, Failure> {
    // Other engines reach this one at the address that routers use.
    let listener = TcpListener::bind((args.listen().ip(), 0)).map_err(Failure::ours)?;
    let port = listener.local_addr().map_err(Failure::ours)?.port();
    let advertised = args.advertise.or_else(|| args.listen().ip().is_unspecified().then(outgoing_address));
    Ok(Fabric {
        listener,
        advertised: advertised.map(|address| SocketAddr::new(address, port)),
        shm: args.options.fabric.unwrap_or_default() == FabricMode::Auto,
        secret: secret.clone(),
        limit_bytes_per_s,
    })
}

/// The address of this machine's route to other networks. Nothing is sent to find it.
fn outgoing_address() -> IpAddr {
    let route = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    route().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}
