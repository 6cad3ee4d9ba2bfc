"""Cache-aware: what the generating engine has in its prefix cache is neither computed nor sent again."""

import baton


class CacheAware:
    def __init__(self, enough=64):
        self.enough = enough

    async def route(self, request, fleet):
        decode = fleet.decode().lowest(lambda engine: (-engine.cached_tokens, engine.sequences))
        room = await decode.prep_recv(request, end=-1)
        if room.end - room.matched < self.enough:
            # A short rest is computed faster than it is brought.
            return await decode.start_generate(request, room)
        others = fleet.prefill().pairing_with(decode)
        prefill = others.lowest(lambda engine: (-engine.cached_tokens, engine.prefill_tokens))
        kv = prefill.remote_send(request, to=room, begin=room.matched)
        return await decode.start_generate(request, room, fed_by=kv)


if __name__ == "__main__":
    baton.Deployment(prefill=1, decode=2, strategy=CacheAware()).serve()
