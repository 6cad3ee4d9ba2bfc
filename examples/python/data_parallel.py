"""Data parallel: every engine does everything, and a request goes to the one with the fewest."""

import baton


class DataParallel:
    async def route(self, request, fleet):
        engine = fleet.engines.lowest(lambda engine: engine.sequences)
        return await engine.start_generate(request)


if __name__ == "__main__":
    baton.Deployment(prefill=0, decode=2, strategy=DataParallel()).serve()
