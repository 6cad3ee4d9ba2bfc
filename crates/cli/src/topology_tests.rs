//! Options as they are typed, and the engines that follow from them.

use clap::Parser;

use super::*;

fn disagg() -> RouterMode {
    RouterMode::try_from("disagg".to_owned()).unwrap()
}

/// The options of `baton serve` that matter here.
#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    fleet: FleetOptions,
    #[arg(long)]
    router_mode: Option<RouterMode>,
}

/// `mode: name[@place][×shards] …`, or the error.
fn serve(typed: &str) -> String {
    let typed = Typed::parse_from(format!("serve {typed}").split_whitespace());
    shown(Topology::of_serve(&typed.fleet, typed.router_mode))
}

fn shown(topology: Result<Topology, Failure>) -> String {
    let topology = match topology {
        Ok(topology) => topology,
        Err(failure) => return failure.to_string(),
    };
    let engines = topology.engines.into_iter().map(|seat| {
        let place = seat.place.map_or(String::new(), |place| format!("@{place}"));
        let shards = seat.shards.map_or(String::new(), |shards| format!("×{shards}"));
        format!(" {}{place}{shards}", seat.name)
    });
    format!("{}:{}", topology.mode.name(), engines.collect::<String>())
}

#[test]
fn engines_are_counted_or_listed() {
    let cases = [
        // Counted.
        ("", "auto: prefill-0 decode-0"),
        ("--decode 2", "auto: prefill-0 decode-0 decode-1"),
        ("--prefill 2 --decode 1", "auto: prefill-0 prefill-1 decode-0"),
        ("--prefill 0", "auto: decode-0"),
        ("--prefill 0 --decode 2", "auto: decode-0 decode-1"),
        ("--router-mode disagg", "disagg: prefill-0 decode-0"),
        ("--router-mode least-loaded", "least-loaded: decode-0"),
        ("--router-mode round-robin --decode 2", "round-robin: decode-0 decode-1"),
        ("--endpoint-num-gpus 2,1", "auto: prefill-0×2 decode-0×1"),
        ("--prefill 0 --decode 3 --endpoint-num-gpus 1,2,4", "auto: decode-0×1 decode-1×2 decode-2×4"),
        // Listed engines are served round-robin by default.
        ("--endpoint-ports 9001,9002", "round-robin: mixed-0@127.0.0.1:9001 mixed-1@127.0.0.1:9002"),
        ("--endpoint-hosts a,::1 --endpoint-ports 1,2", "round-robin: mixed-0@a:1 mixed-1@[::1]:2"),
        ("--endpoint-ports 0,0 --prefill 0", "round-robin: mixed-0@127.0.0.1:0 mixed-1@127.0.0.1:0"),
        ("--endpoint-ports 1,2 --router-mode auto", "auto: mixed-0@127.0.0.1:1 mixed-1@127.0.0.1:2"),
        ("--endpoint-ports 1,2 --router-mode least-loaded", "least-loaded: mixed-0@127.0.0.1:1 mixed-1@127.0.0.1:2"),
        (
            "--endpoint-hosts a,b,c --endpoint-ports 1,1,1 --router-mode disagg",
            "disagg: prefill-0@a:1 decode-0@b:1 decode-1@c:1",
        ),
        (
            "--endpoint-hosts a,b,c --endpoint-ports 1,1,1 --endpoint-num-gpus 4,2,1 --prefill 2",
            "auto: prefill-0@a:1×4 prefill-1@b:1×2 decode-0@c:1×1",
        ),
        ("--endpoint-ports 1,2 --prefill 1 --decode 1", "auto: prefill-0@127.0.0.1:1 decode-0@127.0.0.1:2"),
    ];
    for (typed, expected) in cases {
        assert_eq!(serve(typed), expected, "{typed}");
    }
}

#[test]
fn what_makes_no_sense_is_one_message() {
    let cases = [
        ("--decode 0", "error: --decode must be at least 1, and engines at most 256 in all, not 1 + 0"),
        ("--decode 300", "error: --decode must be at least 1, and engines at most 256 in all, not 1 + 300"),
        (
            "--prefill 0 --router-mode disagg",
            "error: --router-mode disagg needs prefill engines\nhint: add --prefill 1",
        ),
        (
            "--prefill 1 --router-mode round-robin",
            "error: prefill engines take no part in --router-mode round-robin\n\
             hint: leave out --router-mode or the prefill engines",
        ),
        ("--endpoint-hosts a,b", "error: --endpoint-hosts needs --endpoint-ports, as many of them"),
        (
            "--endpoint-hosts a,b --endpoint-ports 1",
            "error: the endpoint lists must be equally long, not 2 hosts, 1 ports",
        ),
        (
            "--endpoint-ports 1,2 --endpoint-num-gpus 1,2,3",
            "error: the endpoint lists must be equally long, not 2 ports, 3 num-gpus",
        ),
        (
            "--endpoint-hosts a --endpoint-ports 1,2 --endpoint-num-gpus 1,2,3",
            "error: the endpoint lists must be equally long, not 1 hosts, 2 ports, 3 num-gpus",
        ),
        ("--endpoint-num-gpus 1", "error: --endpoint-num-gpus needs a number for each of the 2 engines, not 1"),
        ("--endpoint-num-gpus 1,0", "error: --endpoint-num-gpus must be at least 1"),
        ("--endpoint-ports 7,7", "error: endpoint 127.0.0.1:7 is listed twice"),
        (
            "--endpoint-ports 1,2 --decode 3",
            "error: --prefill 0 and --decode 3 do not add up to the 2 endpoints listed",
        ),
        ("--endpoint-ports 1 --router-mode disagg", "error: of 1 endpoints 1 compute prompts: none is left to decode"),
        (
            "--endpoint-ports 1,2 --prefill 3",
            "error: --prefill 3 and --decode 0 do not add up to the 2 endpoints listed",
        ),
    ];
    for (typed, expected) in cases {
        assert_eq!(serve(typed), expected, "{typed}");
    }
}

#[test]
fn a_router_is_given_every_engine() {
    let router = |engines: &str, mode| {
        let engines: Vec<EngineUrl> = engines.split_whitespace().map(|engine| engine.parse().unwrap()).collect();
        shown(Topology::of_router(&engines, mode))
    };
    let cases = [
        ("http://a:1", None, "auto: mixed-0@a:1"),
        ("a:1=prefill http://b:2=decode c:3=decode", None, "auto: prefill-0@a:1 decode-0@b:2 decode-1@c:3"),
        ("a:1 b:2", Some(RouterMode::ROUND_ROBIN), "round-robin: mixed-0@a:1 mixed-1@b:2"),
        ("a:1 b:2", Some(disagg()), "disagg: mixed-0@a:1 mixed-1@b:2"),
        ("a:1 a:1", None, "error: endpoint a:1 is listed twice"),
        ("a:1=prefill", None, "error: no engine can decode\nhint: give at least one the role decode or mixed"),
        (
            "a:1=decode",
            Some(disagg()),
            "error: --router-mode disagg needs prefill engines\nhint: give one the role prefill or mixed",
        ),
    ];
    for (engines, mode, expected) in cases {
        assert_eq!(router(engines, mode), expected, "{engines}");
    }
    for (text, problem) in [("a:1=boss", "\"boss\" is not a role"), ("a=decode", "is not an endpoint")] {
        assert!(text.parse::<EngineUrl>().unwrap_err().contains(problem), "{text}");
    }
}
