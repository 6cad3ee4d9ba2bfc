"""Context migration: a conversation leaves a busy engine, and its KV goes with it."""

import baton


class ContextMigration:
    def __init__(self, most=4):
        self.most = most

    async def route(self, request, fleet):
        home = fleet.engines.lowest(lambda engine: (-engine.cached_tokens, engine.sequences))
        others = fleet.engines.pairing_with(home)
        refuge = min(others, key=lambda engine: engine.sequences, default=home)
        if home.cached_tokens == 0 or home.sequences <= refuge.sequences + self.most:
            return await home.start_generate(request)
        room = await refuge.prep_recv(request, end=-1)
        kv = home.remote_send(request, to=room)
        return await refuge.start_generate(request, room, fed_by=kv)


if __name__ == "__main__":
    baton.Deployment(prefill=0, decode=2, strategy=ContextMigration()).serve()
