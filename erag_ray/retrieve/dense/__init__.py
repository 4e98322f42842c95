"""Dense retrieval: encoders, an index of vectors, and reranking by models or vectors."""
