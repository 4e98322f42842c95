"""A model from outside the package, named ``outside_model:Words``: it knows words, and nothing else."""

import math
from collections.abc import Iterator, Sequence

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import Model
from erag_ray.prompts.request import Request, Response


class Words(Model):
    """Writes the title of the last passage; finds answers likely whose words stand in the prompt."""

    supports = frozenset({"generate", "loglikelihood"})

    def __init__(self, config: ReaderConfig) -> None:
        super().__init__(config)
        if unknown := set(config.options) - {"floor"}:
            raise ValueError(f"it takes the option floor, not {', '.join(sorted(unknown))}")
        self.floor = float(config.options.get("floor", 0.01))

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        for place, (request, prompt) in enumerate(zip(requests, self.render(requests), strict=True)):
            words = prompt.text.lower().split()
            if request.form.method == "generate":
                yield place, Response(text=request.passages[-1].title if request.passages else "")
            else:
                yield place, Response(logprobs=tuple(self.likely(one, words) for one in request.answers))

    def likely(self, answer: str, words: Sequence[str]) -> float:
        return sum(math.log(min(1.0, self.floor + words.count(w) / 9)) for w in answer.lower().split())
