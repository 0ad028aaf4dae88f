// Maximum flow and minimum cut of a directed graph with capacities (Dinic's algorithm).
#pragma once
#include <cstdint>
#include <vector>

namespace lutra {

class MinCut {
 public:
  static constexpr double kInfinite = 1e30;
  int add_node();
  void add_edge(int from, int to, double capacity);
  // Returns the flow. If it is kInfinite or more, no cut of finite edges separates source and sink.
  double run(int source, int sink);
  // Call it after run. Returns, for each node, whether the sink can still be reached from it. The edges from nodes that
  // cannot reach it to nodes that can are the minimum cut nearest to the sink.
  std::vector<bool> behind(int sink) const;

 private:
  struct Edge {
    int to;
    double left;
    size_t back;  // the edge the other way, in edges_[to]
  };
  bool find_levels(int source, int sink);
  double push(int sink, int source);

  std::vector<std::vector<Edge>> edges_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace lutra
